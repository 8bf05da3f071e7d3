"""Arming: all or nothing, every state, and no exception out of it."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
from dataclasses import replace

import pytest

from attnfix.compat.arming import activation as module_under_test
from attnfix.compat.arming import patch_points, stale_references, wrapper
from attnfix.compat.arming.activation import Activation
from attnfix.compat.gate import judge
from attnfix.compat.status import messages, recorder


def state_of(activation, fix):
    return activation.states[fix.id]


def test_armed_by_the_last_target(engine):
    activation = Activation([engine.fix])
    state = state_of(activation, engine.fix)
    assert state.state == "dormant"
    backend = engine.load(activation, "attention").Backend()
    assert state.state == "pending"
    assert backend.forward(1) == backend.captured(1) == 2, "a pending fix changes nothing"
    planning = engine.load(activation, "planning")
    assert state.state == "installed", state.reason
    assert backend.forward(1) == backend.captured(1) == 102, "a bound method captured while pending is corrected, too"
    assert planning.plan(1) == 1002
    assert state.state == "effective"
    assert (state.counters.calls, state.counters.corrections, state.counters.rows) == (3, 2, 6)


@pytest.mark.parametrize("verdict", ["fixed upstream", "not affected"])
def test_healthy_code_is_left_alone(engine, verdict):
    engine.judge_as(verdict)
    activation = Activation([engine.fix])
    module = engine.load(activation, "planning", "attention")
    assert state_of(activation, engine.fix).state == verdict
    assert not hasattr(vars(module.Backend)["forward"], "__wrapped__")


def test_unknown_source_names_what_differs(engine):
    engine.write("planning", "def plan(x):\n    return x + 2\n")
    activation = Activation([engine.fix])
    module = engine.load(activation, "attention", "planning")
    state = state_of(activation, engine.fix)
    assert state.state == "unknown source"
    assert "plan" in state.reason and "1.0" in state.reason and "Backend.forward" not in state.reason
    assert not hasattr(module.plan, "__wrapped__")


def test_a_target_replaced_by_someone_else_is_a_conflict(engine):
    import sglang.attention as attention

    def mine(self, x):
        return 0

    attention.Backend.forward = mine
    activation = Activation([engine.one_target()])
    engine.load(activation, "attention")
    state = state_of(activation, engine.fix)
    assert state.state == "conflict" and "mine" in state.reason
    assert vars(attention.Backend)["forward"] is mine


def test_a_target_wrapped_by_someone_else_is_a_conflict(engine):
    import sglang.attention as attention
    import wrapt

    def foreign(wrapped, instance, args, kwargs):
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(attention, "Backend.forward", foreign)
    activation = Activation([engine.one_target()])
    engine.load(activation, "attention")
    state = state_of(activation, engine.fix)
    assert state.state == "conflict" and "foreign" in state.reason


def test_a_class_replaced_by_someone_else_is_a_conflict(engine):
    import sglang.attention as attention

    attention.Backend = type("Theirs", (attention.Backend,), {})
    activation = Activation([engine.one_target()])
    engine.load(activation, "attention")
    state = state_of(activation, engine.fix)
    assert state.state == "conflict" and "Theirs" in state.reason


def test_a_target_replaced_while_pending_is_a_conflict_and_nothing_stays(engine):
    activation = Activation([engine.fix])
    attention = engine.load(activation, "attention")
    attention.Backend.forward = lambda self, x: 7
    planning = engine.load(activation, "planning")
    assert state_of(activation, engine.fix).state == "conflict"
    assert not hasattr(planning.plan, "__wrapped__")
    assert attention.Backend().forward(1) == 7


def test_other_code_in_the_wrapped_function_is_a_conflict_at_the_next_look(engine):
    activation = Activation([engine.one_target()])
    attention = engine.load(activation, "attention")
    attention.Backend.forward.__code__ = (lambda self, x, scale=2: "edited").__code__
    (row,) = activation.rows()
    assert row["state"] == "conflict" and "Backend.forward was replaced" in row["reason"]
    assert attention.Backend().forward(1) == "edited"


def test_late_rebinds_imported_names(engine):
    import sglang.attention as attention
    import sglang.planning as planning

    attention.stale = planning.plan
    activation = Activation([engine.fix])
    activation.catch_up()
    assert state_of(activation, engine.fix).state == "installed", state_of(activation, engine.fix).reason
    assert attention.Backend().captured(1) == 102
    assert attention.stale(1) == 1002


def test_late_when_an_instance_keeps_a_bound_method(engine):
    import sglang.attention as attention

    backend = attention.Backend()
    activation = Activation([engine.one_target()])
    activation.catch_up()
    (row,) = activation.rows()
    assert row["state"] == "late" and "a Backend" in row["reason"] and "before the engine loads" in row["reason"]
    assert backend.captured(1) == attention.Backend().forward(1) == 2


def test_late_when_a_reference_cannot_be_rebound(engine):
    import sglang.attention as attention
    import sglang.planning as planning

    held = [planning.plan]
    activation = Activation([engine.fix])
    activation.catch_up()
    state = state_of(activation, engine.fix)
    assert state.state == "late" and "list" in state.reason
    assert held[0] is planning.plan and not hasattr(vars(attention.Backend)["forward"], "__wrapped__")


@pytest.mark.parametrize(
    "owner, name",
    [
        (judge, "judge"), (judge, "locate"), (module_under_test, "live"), (module_under_test, "swap"),
        (module_under_test, "home"), (module_under_test, "take"), (patch_points, "live"), (patch_points, "swap"), (patch_points,
        "stands"), (wrapper.WrappedTarget, "__init__"), (wrapper.WrappedTarget, "of"), (wrapper.WrappedTarget, "add"),
        (patch_points, "_check_plain"), (messages, "summary"), (recorder, "Record"), (stale_references, "rebind"),
        (module_under_test, "version_of"), (recorder, "version_of"), (module_under_test, "loaded_root"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_failure_at_any_step_leaves_the_fix_wholly_armed_or_disarmed(engine, monkeypatch, owner, name, at):
    real, count = getattr(owner, name), 0

    def failing(*args, **kwargs):
        nonlocal count
        count += 1
        if count == at:
            raise ImportError(f"injected into {name}")
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)
    activation = Activation([engine.fix])
    attention = engine.load(activation, "attention")
    planning = engine.load(activation, "planning")
    results = attention.Backend().forward(1), planning.plan(1)
    state = state_of(activation, engine.fix)
    assert results in ((102, 1002), (2, 2)), f"half armed: {results}, {state.state}: {state.reason}"
    assert (state.base == "installed") is (results == (102, 1002)) is state.armed
    if state.base == "failed":
        assert "injected" in state.reason and "injected" in state.traceback


def test_a_correction_that_fails_returns_what_the_engine_returned(engine):
    activation = Activation([engine.one_target("broken_after")])
    backend = engine.load(activation, "attention").Backend()
    assert backend.forward(3) == 6
    state = state_of(activation, engine.fix)
    assert state.state == "failed" and "after" in state.reason and not state.armed
    assert backend.forward(3) == 6


def test_a_correction_that_fails_before_the_engine_runs_it_once(engine):
    activation = Activation([engine.one_target("broken_before")])
    backend = engine.load(activation, "attention").Backend()
    assert backend.forward(3) == 6
    assert state_of(activation, engine.fix).state == "failed"


def test_the_engines_own_exception_passes_and_disarms_nothing(engine):
    activation = Activation([engine.one_target()])
    backend = engine.load(activation, "attention").Backend()
    with pytest.raises(KeyError):
        backend.forward("boom")
    assert state_of(activation, engine.fix).armed


def test_twice_in_one_process_and_after_a_reload(engine):
    activation = Activation([engine.one_target()])
    module = engine.load(activation, "attention")
    activation.module_loaded("sglang.attention")
    activation.catch_up()
    assert module.Backend().forward(1) == 102
    importlib.reload(module)
    assert module.Backend().forward(1) == 2
    activation.module_loaded("sglang.attention")
    assert module.Backend().forward(1) == 102


@pytest.mark.parametrize(
    "verdict, asked, state",
    [
        ("affected", None, "off"),
        ("fixed upstream", None, "fixed upstream"),  # more than `off` can say: nothing is to be turned on
        ("fixed upstream", "0", "off"),
        ("affected", "1", "installed"),
    ],
)
def test_off_by_default_is_said_where_it_could_be_turned_on(engine, monkeypatch, verdict, asked, state):
    fix = replace(engine.one_target(), default=False)
    engine.judge_as(verdict, fix)
    if asked is not None:
        monkeypatch.setenv(fix.switch, asked)
    activation = Activation([fix])
    engine.load(activation, "attention")
    assert state_of(activation, fix).state == state


def test_two_fixes_on_one_target_run_in_order_and_switch_apart(engine, monkeypatch):
    first, second = engine.one_target(), engine.one_target("other", id="sglang.second-fix")
    engine.judge_as("affected", first)
    monkeypatch.setenv(second.switch, "0")
    activation = Activation([first, second])
    module = engine.load(activation, "attention")
    assert module.Backend().forward(1) == 102
    assert [state.state for state in activation.states.values()] == ["effective", "off"]
    monkeypatch.delenv(second.switch)
    importlib.reload(module)
    Activation([first, second]).module_loaded("sglang.attention")
    assert module.Backend().forward(1) == 107


def test_patched_bound_methods_pickle_and_copy_as_the_name_they_stand_for(engine):
    activation = Activation([engine.one_target()])
    module = engine.load(activation, "attention")
    backend = module.Backend()
    del backend.captured
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(backend.forward, protocol))
        assert again(1) == 102 and again.__self__ is not backend
        assert pickle.loads(pickle.dumps(module.Backend.forward, protocol))(backend, 1) == 102
    assert b"attnfix" not in pickle.dumps(backend.forward), "a process without attnfix must be able to read it"
    assert copy.deepcopy(backend.forward)(1) == 102
    assert copy.copy(backend.forward)(1) == 102
    assert copy.deepcopy({"f": module.Backend.forward})["f"](backend, 1) == 102


def test_no_record_is_no_harm(engine, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("ATTNFIX_RUN_DIR", str(blocked / "below"))
    activation = Activation([engine.one_target()])
    assert engine.load(activation, "attention").Backend().forward(1) == 102


def test_a_module_from_another_folder_than_the_judged_one_is_a_conflict(engine, tmp_path):
    """Same names, same line numbers, other code: what was judged is not what runs."""
    overlay = tmp_path / "overlay" / "planning.py"
    overlay.parent.mkdir()
    overlay.write_text((engine.root / "planning.py").read_text().replace("+ 1", "+ 7"))
    import sglang

    sglang.__path__.insert(0, str(overlay.parent))
    import sglang.planning as planning

    sglang.__path__.pop(0)
    activation = Activation([engine.fix])
    engine.load(activation, "attention", "planning")
    state = state_of(activation, engine.fix)
    assert state.state == "conflict" and "overlay" in state.reason
    assert planning.plan(1) == 8 and not hasattr(planning.plan, "__wrapped__")


def test_the_record_follows_a_fix_that_disarms_itself_while_serving(engine):
    from attnfix.compat.status import process_record

    activation = Activation([engine.one_target("broken_after")], facts=lambda: {"kernels": {"some_op": {"path": "reference"}}})
    backend = engine.load(activation, "attention").Backend()
    (before,) = process_record.read_all()
    backend.forward(3)
    (after,) = process_record.read_all()
    assert (before["fixes"][0]["state"], after["fixes"][0]["state"]) == ("installed", "failed")
    assert "after" in after["fixes"][0]["traceback"] and after["kernels"] == {"some_op": {"path": "reference"}}


def test_a_target_replaced_after_installation_shows(engine):
    activation = Activation([engine.one_target()])
    module = engine.load(activation, "attention")
    module.Backend.forward = lambda self, x: 0
    assert [row["state"] for row in activation.rows()] == ["conflict"]


@pytest.mark.parametrize("gone", ["sglang", "sglang.attention", "sglang.planning"])
def test_a_module_that_python_takes_out_for_a_moment_is_not_gone(engine, monkeypatch, gone):
    """At the end of every import: `module = sys.modules.pop(name); sys.modules[name] = module`."""
    activation = Activation([engine.fix])
    planning = engine.load(activation, "attention", "planning")
    with monkeypatch.context() as moment:
        moment.delitem(sys.modules, gone)
        assert [row["state"] for row in activation.rows()] == ["installed"]
        activation.catch_up()
        assert planning.plan(1) == 1002
    assert [row["state"] for row in activation.rows()] == ["effective"]


@pytest.mark.parametrize("gone", ["sglang", "sglang.attention"])
def test_a_fix_is_armed_while_python_takes_a_module_out_for_a_moment(engine, monkeypatch, gone):
    activation = Activation([engine.fix])
    engine.load(activation, "attention")
    importlib.import_module("sglang.planning")
    with monkeypatch.context() as moment:
        moment.delitem(sys.modules, gone)
        activation.module_loaded("sglang.planning")
    assert state_of(activation, engine.fix).state == "installed", state_of(activation, engine.fix).reason


def test_threads_that_finish_two_targets_share_one_activation(monkeypatch):
    import threading

    from attnfix.bootstrap import process

    monkeypatch.setattr(process, "_activation", None)
    barrier, seen = threading.Barrier(8), []

    def get():
        barrier.wait()
        seen.append(process.activation())

    threads = [threading.Thread(target=get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8 and len(set(map(id, seen))) == 1


def test_a_correction_that_calls_twice_sees_each_failure_of_the_one_inside_it_anew(engine):
    """The first call ends well; in the second, the inner correction fails before it has called the engine."""
    turn = iter([False, True])

    def inner(call, instance):
        if next(turn):
            raise ValueError("the second time")
        return call() + 100

    def outer(call, instance):
        return [call(x=1), call(x=2)]

    first, second = wrapper.FixState(engine.one_target()), wrapper.FixState(engine.one_target(id="sglang.second-fix"))
    first.armed = second.armed = True
    target = wrapper.WrappedTarget(lambda x: x * 2, wrapper.CodePath("m", "f")).add(first, inner).add(second, outer).function
    assert target(0) == [102, 4] and (first.state, second.armed) == ("failed", True)


def test_an_error_of_the_engine_in_a_second_call_is_the_engines(engine):
    def outer(call, instance):
        return [call(x=1), call(x=0)]

    state = wrapper.FixState(engine.one_target())
    state.armed = True
    target = wrapper.WrappedTarget(lambda x: 1 / x, wrapper.CodePath("m", "f")).add(state, outer).function
    with pytest.raises(ZeroDivisionError):
        target(0)
    assert state.armed
