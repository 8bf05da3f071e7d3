"""Functions of a correction that the engine itself calls: who is to blame for their errors, and what the engine gets."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import weakref
from dataclasses import replace

import pytest
import torch

from attnfix.compat.arming import serving_failure
from attnfix.compat.arming.wrapper import WrappedTarget
from attnfix.compat.fix import SLOWER, WRONG_OUTPUT, CodePath
from attnfix.compat.status import messages
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.catalogue import FIXES

from .test_serving_failure import NO_MEMORY, ended

WRONG = next(fix for fix in FIXES if fix.harm == WRONG_OUTPUT)
ONE, OTHER = (os.path.join(serving_failure._FIXES, "engine", name, "wrap.py") for name in ("one", "other"))
SHARED = os.path.join(serving_failure._FIXES, "engine", "shared", "tools.py")


def armed(fix=WRONG):
    state = FixState(fix, on_event=messages.tell)
    state.armed = True
    return state


def code_of_a_fix(source, path=ONE, **names):
    """What `source` defines as `it`, as if it stood in this file of the fixes."""
    exec(compile(source, path, "exec"), names)
    return names["it"]


def failing(path=ONE, error="ValueError('ours')"):
    """A function of a fix that raises."""
    return code_of_a_fix(f"def it(*args):\n    raise {error}", path)


def correct_with(kernel, path=ONE):
    """A correction that has the engine call `kernel` in the place of its own."""
    return code_of_a_fix("def it(call, instance):\n    return call(kernel=kernel)", path, kernel=kernel)


def doubled(x):
    if x is None:
        raise ZeroDivisionError("the engine's")
    return 2 * x


class Engine:
    """A function of the engine that calls a kernel and does with its error as `how` says."""

    def __init__(self, how="passes"):
        self.calls, self.how = 0, how

    def function(self):
        def run(x, kernel=doubled):
            self.calls += 1
            try:
                return kernel(x) + 1
            except ValueError as error:
                if self.how == "raises another":
                    raise RuntimeError("the engine's words") from error
                if self.how == "raises another without a cause":
                    raise RuntimeError("the engine's words") from None
                if self.how == "swallows":
                    return -1
                raise

        return run

    def wrapped(self, *corrections, repeatable=False):
        """`corrections`: (state, correct), the innermost first."""
        wrapper = WrappedTarget(self.function(), CodePath("engine", "run"))
        for state, correct in corrections:
            wrapper.add(state, correct, repeatable=repeatable)
        return wrapper.function


def guarding(ours, path=ONE, **how):
    return code_of_a_fix(
        "def it(call, instance):\n"
        "    result = call(kernel=call.guard(ours, stock, **how))\n"
        "    call.corrected()\n"
        "    return result",
        path,
        ours=ours,
        stock=doubled,
        how=how,
    )


# Without a guard: whose error it is


@pytest.mark.parametrize("how", ["passes", "raises another", "raises another without a cause"])
@pytest.mark.parametrize("path", [ONE, SHARED])
def test_an_error_of_ours_is_ours_however_the_engine_hands_it_on(how, path):
    engine, state = Engine(how), armed()
    run = engine.wrapped((state, correct_with(failing(path))), repeatable=True)
    assert run(4) == 9 and engine.calls == 2 and state.state == "failed" and "rais" in state.reason
    assert run(4) == 9 and engine.calls == 3


def test_a_function_that_may_not_be_repeated_is_not():
    engine, state = Engine(), armed()
    with pytest.raises(ValueError, match="ours"):
        engine.wrapped((state, correct_with(failing())))(4)
    assert engine.calls == 1 and state.state == "failed"


def test_an_error_of_the_engine_is_its_own_with_a_fix_around_it_and_one_beneath_it():
    engine, state, beneath = Engine(), armed(), armed(FIXES[1])
    kernel = WrappedTarget(doubled, CodePath("engine", "doubled")).add(beneath, failing(OTHER, "ZeroDivisionError()")).function
    inner = WrappedTarget(doubled, CodePath("engine", "doubled"))
    inner.add(armed(FIXES[2]), code_of_a_fix("def it(call, instance):\n    return call()", OTHER))
    for one in (doubled, kernel, inner.function):
        passes = code_of_a_fix("def it(call, instance):\n    return call(kernel=kernel)", kernel=one)
        with pytest.raises(ZeroDivisionError, match="the engine's"):
            engine.wrapped((state, passes))(None)
    assert state.armed and not beneath.armed


@pytest.mark.parametrize("how", ["passes", "raises another", "raises another without a cause"])
def test_of_two_fixes_on_one_function_the_one_whose_error_it_is_is_to_blame(how):
    """Whether the inner one's function fails or the outer one's, which the engine calls within the inner one."""
    passing = code_of_a_fix("def it(call, instance):\n    return call()", OTHER)
    for corrections in ([correct_with(failing()), passing], [passing, correct_with(failing())]):
        engine, states = Engine(how), [armed(FIXES[0]), armed(FIXES[1])]
        with pytest.raises((ValueError, RuntimeError)):
            engine.wrapped(*zip(states, corrections))(4)
        assert [state.armed for state in states] == [correct is passing for correct in corrections]


def test_a_fix_around_is_not_to_blame_for_what_was_settled_further_in():
    engine, inner, outer = Engine(), armed(FIXES[0]), armed(FIXES[1])
    with pytest.raises(ValueError):
        engine.wrapped((inner, correct_with(failing())), (outer, code_of_a_fix("def it(call, instance):\n    return call()")))(
            4
        )
    assert outer.armed and not inner.armed


def test_a_chain_of_causes_may_be_a_circle():
    first, second = ValueError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert not serving_failure.is_ours(first, failing())


def test_the_paths_of_the_fixes_are_those_of_the_code_that_runs():
    for fix in FIXES:
        for target in fix.targets:
            for part in (getattr(target, "correct", None), getattr(target, "needed", None)):
                assert part is None or part.__code__.co_filename.startswith(serving_failure._FIXES)
    assert WrappedTarget.add.__code__.co_filename.startswith(serving_failure._OURS)


# With a guard


@pytest.mark.parametrize("how", ["passes", "raises another", "swallows"])
def test_where_ours_fails_the_engines_kernel_runs_and_the_fix_is_given_up(how):
    engine, state = Engine(how), armed()
    run = engine.wrapped((state, guarding(failing())))
    assert run(4) == 9 and engine.calls == 1 and state.counters.corrections == 0
    assert state.state == "failed" and "ValueError: ours" in state.reason and "raise ValueError" not in state.reason
    assert "ValueError: ours" in state.traceback and os.path.basename(ONE) in state.traceback
    assert run(4) == 9


def test_an_error_of_the_engines_kernel_is_its_own_and_has_no_other_behind_it():
    state = armed()
    run = Engine().wrapped((state, guarding(failing())))
    with pytest.raises(ZeroDivisionError, match="the engine's") as raised:
        run(None)
    assert state.armed and raised.value.__context__ is None


def test_ours_counts_where_it_does_not_fail():
    state = armed()
    assert Engine().wrapped((state, guarding(lambda x: 10 * x)))(4) == 41 and state.counters.corrections == 1


@pytest.mark.parametrize("error", NO_MEMORY, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("harm", [WRONG_OUTPUT, SLOWER])
@pytest.mark.parametrize("kind", ["guard", "watch"])
def test_want_of_memory_within_the_engines_call_disarms_nothing(error, harm, kind):
    def ours(*args):
        raise error

    def watching(call, instance):
        result = call(kernel=call.watch(doubled, ours))
        call.corrected()
        return result

    state = armed(replace(WRONG, harm=harm))
    run = Engine().wrapped((state, guarding(ours) if kind == "guard" else watching))
    if harm == SLOWER:
        assert run(4) == 9
    else:
        with pytest.raises(type(error)) as raised:
            run(4)
        assert raised.value is error
    assert state.armed and state.base != "failed" and state.counters.corrections == 0


@pytest.mark.parametrize("error", [*NO_MEMORY, RecursionError("ours")], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("harm", [WRONG_OUTPUT, SLOWER])
def test_want_of_memory_for_a_plan_fails_no_request(error, harm):
    def ours(*args):
        raise error

    state = armed(replace(WRONG, harm=harm))
    run = Engine().wrapped((state, guarding(ours, plans=True)))
    assert run(4) == 9 and state.state == "failed" and f"ours raised {type(error).__name__}" in state.reason
    assert run(4) == 9 and state.counters.corrections == 0


def test_of_a_plan_that_nothing_makes_the_engine_gets_its_own_error():
    def ours(*args):
        raise torch.OutOfMemoryError("ours")

    state = armed()
    with pytest.raises(ZeroDivisionError, match="the engine's") as raised:
        Engine().wrapped((state, guarding(ours, plans=True)))(None)
    assert state.armed and raised.value.__context__ is None


@pytest.mark.parametrize("error", [ValueError("ours"), NO_MEMORY[0]], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", ["guard", "plan", "watch"])
def test_a_required_fix_ends_the_process_from_within_the_engines_call(error, kind, monkeypatch):
    monkeypatch.setenv("ATTNFIX_STRICT", "1")

    def ours(*args):
        raise error

    watching = lambda call, instance: call(kernel=call.watch(doubled, ours))  # noqa: E731
    correct = watching if kind == "watch" else guarding(ours, plans=kind == "plan")
    code, said = ended(lambda: Engine("swallows").wrapped((armed(), correct))(4))
    assert code == messages.EXIT_STRICT and said.count("\n") == 1 and type(error).__name__ in said


def test_a_required_fix_lives_where_the_engines_kernel_fails_too(monkeypatch):
    monkeypatch.setenv("ATTNFIX_STRICT", "1")

    def step():
        try:
            Engine().wrapped((armed(), guarding(failing())))(None)
        except ZeroDivisionError:
            print("the engine's", file=sys.stderr, flush=True)

    assert ended(step) == (0, "the engine's\n")


def test_what_looks_on_leaves_the_result_and_gives_up():
    seen, state = [], armed()

    def after(result, x):
        seen.append((result, x))
        raise ValueError("ours")

    run = Engine().wrapped((state, lambda call, instance: (call(kernel=call.watch(doubled, after)), call.corrected())[0]))
    assert run(4) == run(4) == 9 and seen == [(8, 4)] and state.state == "failed" and state.counters.corrections == 0


def test_a_function_that_stays_on_an_object_is_the_engines_once_the_fix_is_gone():
    kept, state = [], armed()

    def keeps(call, instance):
        kept.append((call.guard(lambda x: -x, doubled), call.watch(doubled, lambda result, x: kept.append("seen"))))
        return call()

    run = Engine().wrapped((state, keeps))
    assert run(4) == 9
    guarded, watched = kept.pop()
    assert (guarded(4), watched(4), kept.pop()) == (-4, 8, "seen")
    state.settle("conflict", "replaced by theirs")
    assert (guarded(4), watched(4), kept) == (8, 8, [])


def test_a_function_that_stays_on_an_object_gives_the_fix_up_after_its_call():
    kept, state = [], armed()
    run = Engine().wrapped((state, lambda call, instance: (kept.append(call.guard(failing(), doubled)), call())[1]))
    run(4)
    assert state.armed and kept[0](4) == 8 and state.state == "failed" and kept[0](5) == 10


def test_threads_that_fail_at_once_each_have_their_result(caplog):
    state, barrier, results = armed(), threading.Barrier(16), []

    def ours(x):
        barrier.wait(10)  # all are within ours before the first gives up
        raise ValueError("ours")

    run = Engine().wrapped((state, guarding(ours)))
    threads = [threading.Thread(target=lambda: results.append(run(4))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == 16 * [9] and state.state == "failed" and state.counters.corrections == 0


class Tensor(float):
    """An argument of a call, which other than a number can be known to be gone."""


def outlives(run, *errors):
    """Whether the argument of a call is still there after it, where no collection of garbage helps."""
    tensor = Tensor(4)
    known = weakref.ref(tensor)
    gc.disable()
    try:
        with contextlib.suppress(*errors):
            run(tensor)
        del tensor
        return known() is not None
    finally:
        gc.enable()


def of_no_use(x):
    raise ZeroDivisionError("the engine's")


@pytest.mark.parametrize("plans", [False, True])
@pytest.mark.parametrize("stock", [doubled, of_no_use])
@pytest.mark.parametrize("error", ["ValueError('ours')", "MemoryError()"])
def test_a_failure_in_a_guard_keeps_no_argument_alive(error, stock, plans):
    correct = code_of_a_fix(
        "def it(call, instance):\n    return call(kernel=call.guard(ours, stock, plans=plans))",
        ours=failing(error=error),
        stock=stock,
        plans=plans,
    )
    assert not outlives(Engine().wrapped((armed(), correct)), MemoryError, ZeroDivisionError)


@pytest.mark.parametrize("harm", [WRONG_OUTPUT, SLOWER])
@pytest.mark.parametrize("error", ["ValueError('ours')", "MemoryError()"])
@pytest.mark.parametrize("part", ["look", "correct", "watch", "check"])
def test_a_failure_keeps_no_argument_alive(part, error, harm):
    """An error that the engine gets holds the frames that it came through, and these may not hold it."""
    state, broken = armed(replace(WRONG, harm=harm)), failing(error=error)
    correct = lambda call, instance, x: call(kernel=call.watch(doubled, broken)) if part == "watch" else broken()  # noqa: E731
    wrapper = WrappedTarget(Engine().function(), CodePath("engine", "run"))
    wrapper.add(state, correct, (lambda target, instance, x: broken()) if part == "look" else None)
    if part == "check":
        state.recheck_on_first_call = broken
    assert not outlives(wrapper.function, MemoryError)


def test_an_error_that_ranks_get_keeps_no_argument_alive(monkeypatch):
    monkeypatch.setattr(serving_failure, "_rank", lambda: "rank 1 of 2")
    state = armed(replace(WRONG, ranks_alike=True))
    assert not outlives(Engine().wrapped((state, guarding(failing()))), ValueError) and state.base == "failed"


# The engine's function once more


def changes_and_fails(call, instance, x):
    call(x=x + 100)
    raise ValueError("ours")


@pytest.mark.parametrize("repeatable", [True, False])
def test_a_changed_call_that_is_corrected_no_further_is_made_anew_where_it_may_be(repeatable):
    engine, state = Engine(), armed()
    run = engine.wrapped((state, changes_and_fails), repeatable=repeatable)
    assert run(4) == (9 if repeatable else 209) and engine.calls == 1 + repeatable and not state.armed


def test_an_unchanged_call_is_not_made_anew():
    def fails(call, instance):
        call()
        raise ValueError("ours")

    engine = Engine()
    assert engine.wrapped((armed(), fails), repeatable=True)(4) == 9 and engine.calls == 1


def test_the_call_that_is_made_anew_has_the_corrections_further_in():
    engine = Engine()
    inner = lambda call, instance: call() + 1000  # noqa: E731
    assert engine.wrapped((armed(FIXES[0]), inner), (armed(FIXES[1]), changes_and_fails), repeatable=True)(4) == 1009


def test_a_target_stays_repeatable_when_another_fix_is_withdrawn():
    wrapper = WrappedTarget(Engine().function(), CodePath("engine", "run"))
    others = armed(FIXES[0])
    wrapper.add(others, lambda call, instance: call()).add(armed(FIXES[1]), changes_and_fails, repeatable=True).remove(others)
    assert wrapper.function(4) == 9


# The order of fixes


def test_when_one_is_withdrawn_the_others_keep_their_order():
    states = [armed(fix) for fix in FIXES[:4]]
    wrapper = WrappedTarget(lambda x: [x], CodePath("engine", "noted"))
    for at, state in enumerate(states):
        wrapper.add(state, code_of_a_fix(f"def it(call, instance):\n    return [{at}, *call()]"))
    assert wrapper.function("x") == [3, 2, 1, 0, "x"]
    wrapper.remove(states[1])
    assert wrapper.function("x") == [3, 2, 0, "x"] and [link.state for link in wrapper.links] == [
        states[3],
        states[2],
        states[0],
    ]
    assert [link.inside for link in wrapper.links] == [wrapper.links[1:], wrapper.links[2:], ()]
    wrapper.remove(states[3])
    assert wrapper.function("x") == [2, 0, "x"]


# A stack that is full


def at_depth(depth, function, *args):
    return function(*args) if depth <= 0 else at_depth(depth - 1, function, *args)


def taking(frames):
    """A correction that needs some stack itself."""
    inner = lambda left: left and inner(left - 1)  # noqa: E731

    def correct(call, instance, x):
        inner(frames)
        return call(x=x + 1)

    return correct


@pytest.mark.parametrize("harm", [WRONG_OUTPUT, SLOWER])
@pytest.mark.parametrize("part", ["look", "correct", "guard", "check"])
def test_a_full_stack_disarms_nothing_wherever_it_fills_up(part, harm):
    state, outcomes = armed(replace(WRONG, harm=harm)), set()
    deep = taking(40)

    def look(target, instance):
        if part == "look":
            deep(lambda x: None, None, 0)
        return True

    def correct(call, instance, x):
        if part == "guard":
            return call(kernel=call.guard(lambda x: deep(lambda x: doubled(x), None, x), doubled))
        return deep(call, instance, x) if part == "correct" else call(x=x + 1)

    wrapper = WrappedTarget(Engine().function(), CodePath("engine", "run")).add(state, correct, look)
    room = sys.getrecursionlimit() - len(list(frames()))
    for depth in range(room - 120, room):
        if part == "check":
            state.recheck_on_first_call = lambda: deep(lambda x: None, None, 0)
        try:
            outcomes.add(at_depth(depth, wrapper.function, 4))
        except RecursionError:
            outcomes.add("the engine's")
        assert state.armed and state.base != "failed"
    assert outcomes == ({11, "the engine's"} if harm == WRONG_OUTPUT else {11, 9, "the engine's"})
    assert wrapper.function(4) == 11


def frames():
    frame = sys._getframe()
    while frame := frame.f_back:
        yield frame


def test_a_correction_without_end_is_given_up():
    def endless(call, instance):
        return endless(call, instance)

    state = armed()
    assert Engine().wrapped((state, endless))(4) == 9 and state.state == "failed" and "RecursionError" in state.reason


def test_an_engine_that_fills_the_stack_itself_gets_its_own_error():
    def endless(x):
        return endless(x)

    state = armed()
    with pytest.raises(RecursionError):
        Engine().wrapped((state, correct_with(endless)))(4)
    assert state.armed


def test_the_cpu_allocators_error_is_no_stack(monkeypatch):
    assert serving_failure.is_shortage(torch.OutOfMemoryError("CUDA out of memory"))
    assert not serving_failure.is_shortage(RecursionError())


@pytest.mark.parametrize(
    "name, starts",
    [("__init__", True), ("init_cuda_graph_state", True), ("process_weights_after_loading", False), ("forward", False)],
)
def test_want_of_memory_at_start_leaves_the_engine_as_it_is(name, starts):
    """A server starts though memory is short, and the fix is failed. Within a request the engine gets the error."""
    functions: dict = {}
    exec(f"def {name}(self, made):\n    made.append('stock')", functions)
    state, made = armed(), []
    wrapper = WrappedTarget(functions[name], CodePath("engine", f"Backend.{name}"))
    wrapper.add(state, failing(error="MemoryError('no memory')"))
    if starts:
        wrapper.function(object(), made)
        assert made == ["stock"] and not state.armed and "no memory" in state.reason
    else:
        with pytest.raises(MemoryError):
            wrapper.function(object(), made)
        assert state.armed and not made


def test_each_function_that_runs_at_start_is_a_target():
    """A name is compared with that of the engine's function: one that no function has would promise something to no fix."""
    paths = (code_path for fix in FIXES for target in fix.targets for code_path in target.code_paths)
    assert {code_path.qualname.rpartition(".")[2] for code_path in paths} >= serving_failure.AT_START
