"""ATTNFIX=observe: the looks run alone, and the engine gets what it got before."""

from __future__ import annotations

import gc
import logging
import sys
from dataclasses import replace

import pytest

from attnfix.compat.arming import switches
from attnfix.compat.arming.activation import Activation
from attnfix.compat.fix import Attribute, Target
from attnfix.compat.status import messages, metrics, process_record
from attnfix.compat.status.recorder import fixset
from tests.unit.status.test_recorder import in_child

FORWARD = "sglang.attention:Backend.forward"


@pytest.fixture(autouse=True)
def observing(monkeypatch):
    monkeypatch.setenv("ATTNFIX", "observe")


def above_5(target, instance, x):
    return x > 5


def broken(target, instance, x):
    raise ValueError("no such thing")


def corrected(call, instance):
    raise AssertionError("nothing is corrected")


@pytest.fixture
def observed(engine):
    """`observed(needed, …)`: (activation, backend, row of the fix) of a fix with these looks on one target."""

    def made(needed=above_5, *targets, **changes):
        target = Target(corrected, paths=(FORWARD,), needed=needed)
        fix = replace(engine.fix, targets=(target, *targets), witnesses=(), **changes)
        engine.judge_as("affected", fix)
        activation = Activation([fix], facts=lambda: {"server": metrics.server(), "observes": switches.observing()})
        backend = engine.load(activation, "attention").Backend()
        return activation, backend, lambda: activation.rows()[0]

    return made


def test_a_call_is_looked_at_and_passed_on(observed, caplog):
    caplog.set_level(logging.INFO)
    _, backend, row = observed()
    assert [backend.forward(x) for x in (5, 6, 7)] == [10, 12, 14]
    assert row()["state"] == "observed" and row()["observable"] is True
    assert row()["observed"] == {"calls": 3, "needed": 2}
    assert row()["counters"] == {"calls": 0, "corrections": 0, "rows": 0}
    said = [record.getMessage() for record in caplog.records]
    assert sum("would have run on this call" in line for line in said) == 1
    assert sum("nothing is corrected (ATTNFIX=observe)" in line for line in said) == 1
    assert not any("installed" in line for line in said)


def test_an_error_of_the_engine_passes(observed):
    _, backend, row = observed(lambda target, instance, x: True)
    with pytest.raises(KeyError):
        backend.forward("boom")
    assert row()["observed"] == {"calls": 1, "needed": 1}


def test_a_look_that_raises_is_the_last(observed, caplog):
    _, backend, row = observed(broken)
    assert [backend.forward(x) for x in (5, 6)] == [10, 12]
    assert row()["state"] == "failed" and row()["observed"] == {"calls": 1, "needed": 0}
    assert row()["reason"] == "broken raised ValueError: no such thing" and "ValueError" in row()["traceback"]
    (told,) = [record for record in caplog.records if "broken raised" in record.getMessage()]
    assert told.levelname == "WARNING" and "is not observed any more" in told.getMessage()


def test_a_look_keeps_no_argument_alive(observed):
    """A failed look's traceback would hold the tensors of its call."""

    class Tensor(int):
        pass

    _, backend, _ = observed(broken)
    backend.forward(Tensor(5))
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is Tensor]


def test_a_check_at_the_first_call_that_raises_stays_with_us(observed):
    activation, backend, row = observed()

    def short():
        raise MemoryError("no room")

    activation.states[row()["fix"]].recheck_on_first_call = short
    assert backend.forward(6) == 12 and row()["state"] == "failed"


def test_a_target_that_somebody_replaces_is_not_counted_as_seen(observed):
    _, backend, row = observed()
    type(backend).forward = lambda self, x: 0
    assert row()["state"] == "conflict"


@pytest.mark.parametrize(
    "target", [Target(corrected, paths=("sglang.planning:plan",)), Attribute(7, paths=("sglang.attention:Backend.wide",))]
)
def test_without_a_look_at_each_target_nothing_is_touched(observed, engine, target):
    import sglang.attention as attention

    before = dict(vars(attention.Backend))
    _, _, row = observed(above_5, target)
    assert vars(sys.modules["sglang.attention"].Backend) == before
    assert row()["state"] == "off" and row()["observable"] is False and "observed" not in row()
    assert "not observable" in row()["reason"] and "has no look" in row()["reason"]


def test_a_look_that_does_more_is_not_run(observed):
    _, backend, row = observed(broken, look_does="its look writes")
    assert backend.forward(6) == 12 and row()["state"] == "off" and row()["reason"].endswith("its look writes")


@pytest.mark.parametrize("switch, state", [("0", "off"), ("1", "observed"), ("auto", "off")])
def test_switches_hold(observed, monkeypatch, switch, state):
    """A switch of 1 asks for it, and requires nothing: nothing is to be installed."""
    monkeypatch.setenv("ATTNFIX_SGLANG_SMALL_FIX", switch)
    _, backend, row = observed(default=False)
    assert backend.forward(6) == 12 and row()["state"] == state


def test_only_holds(observed, monkeypatch):
    monkeypatch.setenv("ATTNFIX_ONLY", "")
    assert observed()[2]()["state"] == "off"


def test_strict_refuses_it(observed, monkeypatch, caplog):
    refused = []
    monkeypatch.setattr(messages, "refuse", refused.append)
    monkeypatch.setenv("ATTNFIX_STRICT", "1")
    _, backend, row = observed()
    assert backend.forward(6) == 12 and row()["state"] == "off"
    (told,) = {record.getMessage() for record in caplog.records if record.levelname == "ERROR"}
    assert (
        told
        == "attnfix: ATTNFIX_STRICT=1 refuses ATTNFIX=observe, so nothing is armed: it corrects nothing; set one of the two"
    )
    assert refused == [told.removeprefix("attnfix: ")]


def test_the_record_and_the_page_have_words_of_their_own(observed):
    _, backend, _ = observed()
    backend.forward(6)
    (text,) = process_record.read_all()
    (row,) = text["fixes"]
    assert text["observes"] is True and row["state"] == "observed"
    assert row["observed"] == {"calls": 1, "needed": 1} and not any(row["counters"].values())
    samples = {sample.name: sample for family in metrics.families() for sample in family.samples}
    assert samples["attnfix_observed_calls_total"].value == samples["attnfix_observed_needed_total"].value == 1
    assert samples["attnfix_observing_processes"].value == 1
    assert not {"attnfix_processes", "attnfix_calls_total", "attnfix_corrections_total"} & samples.keys()


def test_a_forked_child_counts_from_zero(observed):
    activation, backend, _ = observed()
    backend.forward(6)

    def child():
        backend.forward(6), backend.forward(1)
        return process_record.read(activation._recorder._record.path)["fixes"][0]["observed"]

    assert in_child(child) == {"calls": 2, "needed": 1}
    assert process_record.read(activation._recorder._record.path)["fixes"][0]["observed"] == {"calls": 1, "needed": 1}


def test_the_fix_set_tells_a_process_that_observes(observed, monkeypatch):
    activation, *_ = observed()
    (state,) = activation.states.values()
    looks = fixset("1", [state])
    state.armed, state.observed = True, False
    assert len({looks, fixset("1", [state]), fixset("1", [])}) == 3
