"""Faults where none is expected: an interrupt, a program whose logging raises, a standard error that takes nothing."""

from __future__ import annotations

import importlib
import importlib.abc
import logging
import os
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from attnfix.bootstrap import import_hook, process, target_modules
from attnfix.compat.arming import activation as module_under_test
from attnfix.compat.arming import patch_points, switches, wrapper
from attnfix.compat.arming.activation import Activation
from attnfix.compat.fix import Attribute
from attnfix.compat.status import fix_state


@pytest.fixture
def mixed(engine):
    """The small fix with a class attribute among its targets: what an interrupt can leave half-way."""
    attribute = Attribute(True, paths=("sglang.attention:Backend.padded",))
    fix = replace(engine.fix, targets=(*engine.fix.targets, attribute))
    engine.judge_as("affected", fix)
    return fix


@pytest.mark.parametrize(
    "owner, name",
    [
        (module_under_test, "take"), (module_under_test, "home"), (patch_points.AttributePoint, "arm"), (patch_points, "swap"),
        (wrapper.WrappedTarget, "add"), (fix_state.FixState, "settle"), (module_under_test.Activation, "_log_summary"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_passes_and_leaves_no_fix_half_way(engine, mixed, monkeypatch, owner, name, at, error):
    real, count = getattr(owner, name), 0

    def failing(*args, **kwargs):
        nonlocal count
        count += 1
        if count == at:
            raise error
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)
    activation, passed = Activation([mixed]), False
    for module in ("sglang.attention", "sglang.planning"):
        importlib.import_module(module)
        try:
            activation.module_loaded(module)
        except KeyboardInterrupt:
            passed = True
    monkeypatch.undo()
    attention, planning = sys.modules["sglang.attention"], sys.modules["sglang.planning"]
    padded = getattr(attention.Backend, "padded", None)
    results = attention.Backend().forward(1), planning.plan(1), padded
    assert results in ((2, 2, None), (102, 1002, True)), activation.rows()
    assert not (passed and error is MemoryError)


def test_a_fix_that_was_interrupted_is_not_silent(engine, monkeypatch):
    activation = Activation([engine.fix])
    monkeypatch.setattr(module_under_test, "take", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        engine.load(activation, "attention")
    (row,) = activation.rows()
    assert row["state"] == "failed" and "interrupted" in row["reason"]


def test_a_seat_that_does_not_come_off_keeps_no_other_on(engine, mixed, monkeypatch):
    activation = Activation([mixed])
    attention, planning = engine.load(activation, "attention"), engine.load(activation, "planning")
    first = next(iter(activation.states[mixed.id].patch_points.values()))
    monkeypatch.setattr(type(first), "disarm", lambda self: 1 / 0)
    activation.states[mixed.id].settle("conflict", "")
    assert (attention.Backend().forward(1), planning.plan(1), hasattr(attention.Backend, "padded")) == (2, 2, False)


def test_a_program_whose_logging_raises(engine, monkeypatch):
    class Broken(logging.Filter):
        def filter(self, record):
            raise RuntimeError("theirs")

    activation = Activation([engine.one_target("broken_after")])
    log = logging.getLogger("sglang.attnfix")
    log.setLevel(logging.DEBUG)
    log.addFilter(broken := Broken())
    try:
        module = engine.load(activation, "attention")
        assert activation.rows()[0]["state"] == "installed"
        assert module.Backend().forward(1) == 2, "a correction that fails says so, and the engine's result is returned"
    finally:
        log.removeFilter(broken)
        log.setLevel(logging.NOTSET)


def test_a_failure_without_memory_for_its_traceback(engine, monkeypatch):
    activation = Activation([engine.one_target("broken_after")])
    backend = engine.load(activation, "attention").Backend()

    def full():
        raise MemoryError

    monkeypatch.setattr(fix_state.traceback, "format_exc", full)
    assert backend.forward(3) == 6
    assert not activation.states[engine.fix.id].armed


SILENT = (
    "import os, sys\n{close}\nfrom attnfix.compat.status import messages\nfrom attnfix.bootstrap import import_hook\n"
    "{step}\nos._exit(0)\n"
)


@pytest.mark.parametrize("step", ["messages.refuse('x')", "import_hook.broken('vllm.x', ValueError())"])
@pytest.mark.parametrize("close", ["sys.stderr.close()", "sys.stderr = None", "sys.stderr = open('/dev/full', 'w')"])
def test_a_refusal_ends_the_process_where_nothing_can_be_written(step, close):
    done = subprocess.run(
        [sys.executable, "-c", SILENT.format(close=close, step=step)],
        env={**os.environ, "ATTNFIX_STRICT": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (78, "")


@pytest.mark.parametrize(
    "variables, code",
    [
        ({"ATTNFIX_STRICT": "true"}, 78),
        ({"ATTNFIX_VLLM_MLA_CONTEXT_ORDER": "Yes "}, 78),
        ({"ATTNFIX_STRICT": "1", "ATTNFIX": "off"}, 0),
        ({"ATTNFIX_STRICT": "0"}, 0),
        ({}, 0),
    ],
)
def test_an_attnfix_that_does_not_work_reads_the_switches_as_one_that_does(variables, code):
    step = SILENT.format(close="", step="import_hook.broken('vllm.x', ValueError())")
    assert subprocess.run([sys.executable, "-c", step], env={**os.environ, **variables}, capture_output=True).returncode == code
    assert set(import_hook.ON) | set(import_hook.OFF) < set(switches._VALUES)
    assert all(switches._VALUES[word] is True for word in import_hook.ON)


@pytest.fixture
def hooked(engine, monkeypatch):
    """The import hook over the small engine; what it is told of."""
    told: list[str] = []
    monkeypatch.setattr(target_modules, "MODULES", frozenset({"sglang.attention", "sglang.planning"}))
    monkeypatch.setattr(process, "module_loaded", told.append)
    monkeypatch.setattr(sys, "meta_path", [import_hook._Finder(), *sys.meta_path])
    return told


def test_a_finder_that_raises_raises_as_it_would_without_us(hooked, capfd):
    class Blocker(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name == "sglang.planning":
                raise ModuleNotFoundError("blocked")

    sys.meta_path.insert(1, Blocker())
    with pytest.raises(ModuleNotFoundError, match="blocked"):
        importlib.import_module("sglang.planning")
    assert capfd.readouterr().err == ""


def test_a_module_whose_hook_failed_is_engaged_with_the_next(engine, monkeypatch):
    activation = Activation([engine.fix])
    monkeypatch.setattr(process, "_activation", activation)
    importlib.import_module("sglang.attention")  # nobody was told
    importlib.import_module("sglang.planning")
    process.module_loaded("sglang.planning")
    assert activation.rows()[0]["state"] == "installed"


def test_a_child_forked_while_another_thread_arms_a_fix(engine, mixed, monkeypatch):
    """It must find the fix wholly armed or not at all, and may not wait for a thread that it does not have."""
    activation, arming, go = Activation([mixed]), threading.Event(), threading.Event()
    real = patch_points.AttributePoint.arm

    def slowly(self):
        arming.set()
        go.wait(10)
        real(self)

    monkeypatch.setattr(patch_points.AttributePoint, "arm", slowly)
    attention, planning = engine.load(activation, "attention"), importlib.import_module("sglang.planning")
    thread = threading.Thread(target=activation.module_loaded, args=("sglang.planning",))
    thread.start()
    assert arming.wait(10)
    threading.Timer(0.2, go.set).start()
    child = os.fork()
    if not child:
        results = attention.Backend().forward(1), planning.plan(1), getattr(attention.Backend, "padded", None)
        process.activation()
        os._exit(0 if results in ((2, 2, None), (102, 1002, True)) else 1)
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_what_goes_wrong_while_telling_costs_a_warning(engine, monkeypatch):
    """Also under STRICT: the fixes stand."""
    monkeypatch.setenv("ATTNFIX_STRICT", "1")

    def full(self, *args):
        raise MemoryError

    monkeypatch.setattr(module_under_test.Activation, "_log_summary", full)
    activation = Activation([engine.one_target()])
    module = engine.load(activation, "attention")
    assert hasattr(module.Backend.__dict__["forward"], "__wrapped__")
    assert activation.rows()[0]["state"] == "installed"


@pytest.mark.parametrize("target", ["forward", "plan"])
def test_another_patcher_that_came_after_is_noticed_at_the_first_call(engine, caplog, target):
    """And not only when somebody asks: the other targets of the fix would be corrected, and this one not."""
    activation = Activation([engine.fix])
    attention, planning = engine.load(activation, "attention"), engine.load(activation, "planning")
    owner, name = (attention.Backend, "forward") if target == "forward" else (planning, "plan")
    ours = getattr(owner, name)

    def theirs(*args):
        return ours(*args)

    setattr(owner, name, theirs)
    with caplog.at_level(logging.WARNING):
        assert (attention.Backend().forward(1), planning.plan(1)) == (2, 2)
    assert caplog.text.count("not installed any more") == 1 and "theirs" in caplog.text
    assert activation.rows()[0]["state"] == "conflict"
