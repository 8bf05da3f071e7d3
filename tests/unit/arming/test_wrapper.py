"""The one wrapper: which corrections run, in what order, on which arguments, and how often the engine's function does."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import sys
import threading

import pytest
import wrapt

from attnfix.compat.arming.wrapper import EngineProxy, WrappedTarget, by_name
from attnfix.compat.fix import CodePath
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.catalogue import FIXES


def armed(fix):
    state = FixState(fix)
    state.armed = True
    return state


class Target:
    """A function of the engine that doubles, and notes what it was called with. Each correction: (correct, needed)."""

    def __init__(self, *corrections):
        self.calls = []
        self.wrapper = WrappedTarget(self._engine(), CodePath("engine", "function"))
        self.states = [armed(fix) for fix, _ in zip(FIXES, corrections)]
        for state, (correct, needed) in zip(self.states, corrections):
            self.wrapper.add(state, correct, needed)

    def _engine(self):
        def function(x):
            self.calls.append(x)
            if x is None:
                raise ZeroDivisionError("the engine's")
            return 2 * x

        return function

    @property
    def counted(self):
        return [state.counters.calls for state in self.states]


def never(target, instance):
    return False


def above_5(target, instance, x):
    return x > 5


def one_more(call, instance, x):
    return call(x=x + 1) + 100


def a_thousand_more(call, instance):
    return call() + 1000


def passes(call, instance):
    return call()


def broken(*looks):
    def look(target, instance):
        raise ValueError("ours")

    return look


NOT_NEEDED, ONE_MORE, ABOVE_5 = (one_more, never), (one_more, None), (a_thousand_more, above_5)


@pytest.mark.parametrize("corrections", [(), (NOT_NEEDED,), (NOT_NEEDED,) * 3])
def test_where_none_is_needed_the_engine_runs_once_and_each_was_asked(corrections):
    target = Target(*corrections)
    assert target.wrapper.function(4) == 8 and target.calls == [4] and target.counted == [1] * len(corrections)


@pytest.mark.parametrize("others", [(0, 0), (1, 0), (0, 1), (2, 2)])
def test_one_that_is_needed_runs_whatever_stands_around_it(others):
    target = Target(*[NOT_NEEDED] * others[0], ONE_MORE, *[NOT_NEEDED] * others[1])
    assert target.wrapper.function(4) == 110 and target.calls == [5] and set(target.counted) == {1}


def test_each_decides_by_the_arguments_that_reach_it():
    inside, outside = Target(ABOVE_5, ONE_MORE), Target(ONE_MORE, ABOVE_5)
    assert (inside.wrapper.function(5), outside.wrapper.function(5)) == (2 * 6 + 1000 + 100, 2 * 6 + 100)
    assert inside.calls == outside.calls == [6]


def test_one_whose_look_fails_is_disarmed_and_the_others_run():
    target = Target(ONE_MORE, (one_more, broken()), NOT_NEEDED)
    assert target.wrapper.function(4) == 110 and target.calls == [5]
    assert [state.armed for state in target.states] == [True, False, True] and "ours" in target.states[1].reason
    assert target.wrapper.function(4) == 110 and target.counted == [2, 1, 2]


def test_one_that_fails_before_the_engine_is_disarmed_and_those_inside_run():
    def fails(call, instance):
        raise ValueError("ours")

    target = Target(ONE_MORE, (fails, None))
    assert target.wrapper.function(4) == 110 and target.calls == [5] and target.states[1].state == "failed"


def test_one_that_fails_after_the_engine_leaves_its_result():
    def fails(call, instance):
        call()
        raise ValueError("ours")

    target = Target(ONE_MORE, (fails, None))
    assert target.wrapper.function(4) == 110 and target.calls == [5] and target.states[1].state == "failed"


def test_an_error_of_the_engine_is_its_own_whoever_looked_before():
    target = Target(NOT_NEEDED, (passes, None), NOT_NEEDED)
    with pytest.raises(ZeroDivisionError):
        target.wrapper.function(None)
    assert all(state.armed for state in target.states) and target.calls == [None]


def test_a_correction_gets_what_the_look_has_found():
    target = Target((lambda call, instance: (call(), call.found), lambda target, instance, x: f"{x} was seen"))
    assert target.wrapper.function(4) == (8, "4 was seen")


def test_what_the_first_call_disarms_is_not_asked():
    target = Target(ONE_MORE, ONE_MORE)
    target.states[1].recheck_on_first_call = lambda: target.states[1].settle("conflict", "replaced")
    assert target.wrapper.function(4) == 110 and target.counted == [1, 0]


def test_the_engines_function_is_known_to_the_innermost_alone():
    seen = []

    def look(target, instance):
        seen.append(target.engine_function)

    target = Target((one_more, look), (one_more, look))
    target.wrapper.function(4)
    target.states[0].armed = False
    target.wrapper.function(4)
    assert seen == [None, *2 * [target.wrapper.wrapped]]


def test_its_own_code_in_another_form_runs_on_the_arguments_of_the_call():
    target = Target((lambda call, instance: call.run(lambda x: ("another", x)), None))
    assert target.wrapper.function(4) == target.wrapper.function(x=4) == ("another", 4) and not target.calls


def test_a_call_goes_on_with_the_corrections_it_began_with():
    """As when another thread takes one off in the middle of it."""
    target = Target(ONE_MORE)

    def takes_it_off(call, instance):
        target.wrapper.remove(target.states[0])
        return call()

    target.wrapper.add(armed(FIXES[1]), takes_it_off)
    assert (target.wrapper.function(4), target.wrapper.function(4)) == (110, 8)
    assert [link.correct for link in target.wrapper.links] == [takes_it_off]


def test_64_threads_while_corrections_come_and_go():
    """The engine runs once in each call, and each result is that of some set of corrections."""
    target, barrier, wrong = Target(ONE_MORE), threading.Barrier(65), []
    states = [armed(fix) for fix in FIXES[1:4]]

    def calls():
        barrier.wait()
        for _ in range(200):
            if (found := target.wrapper.function(4)) not in (110, 1110, 2110, 3110):
                wrong.append(found)

    threads = [threading.Thread(target=calls) for _ in range(64)]
    for thread in threads:
        thread.start()
    barrier.wait()
    while any(thread.is_alive() for thread in threads):
        for state in states:
            target.wrapper.add(state, a_thousand_more)
        for state in states:
            target.wrapper.remove(state)
    assert not wrong and len(target.calls) == 64 * 200


# What stands in the engine


class Backend:
    """An engine's class."""

    def plan(self, x: int, *, scale: int = 2) -> int:
        """What it does."""
        return x * scale

    @classmethod
    def made(cls, x):
        return cls().plan(x)

    @staticmethod
    def planned(x):
        return Backend().plan(x)


class Heir(Backend):
    """Overrides, and calls what it overrides."""

    def plan(self, x, **kwargs):
        return super().plan(x, **kwargs) + 1


@pytest.fixture
def wrapper(monkeypatch):
    made = WrappedTarget(Backend.plan, CodePath(__name__, "Backend.plan")).add(armed(FIXES[0]), one_more)
    monkeypatch.setattr(Backend, "plan", made.function)
    return made


def test_it_is_wrapts(wrapper):
    assert isinstance(vars(Backend)["plan"], wrapt.FunctionWrapper)
    assert isinstance(Backend().plan, wrapt.BoundFunctionWrapper) and isinstance(Backend.plan, wrapt.BoundFunctionWrapper)


def test_it_binds_as_the_engines_own_does(wrapper):
    assert Backend().plan(4) == Backend.plan(Backend(), 4) == vars(Backend)["plan"](Backend(), 4) == 110
    assert Heir().plan(4) == 111 and functools.partial(Backend.plan, Backend())(4) == 110
    assert Backend.made(4) == Backend.planned(4) == 110


def test_it_tells_what_the_engines_own_tells_of_itself(wrapper):
    stock = wrapper.wrapped
    assert inspect.signature(Backend.plan) == inspect.signature(stock) and Backend.plan.__doc__ == "What it does."
    assert inspect.signature(Backend().plan) == inspect.signature(stock.__get__(Backend()))
    assert (Backend.plan.__name__, Backend.plan.__qualname__, Backend.plan.__module__) == ("plan", "Backend.plan", __name__)
    assert inspect.getsource(Backend.plan) == inspect.getsource(stock) and inspect.isfunction(Backend.plan)
    assert inspect.ismethod(Backend().plan) and Backend().plan.__self__.__class__ is Backend
    assert inspect.unwrap(Backend.plan) is stock


def test_what_somebody_wraps_around_it_is_not_taken_for_it(wrapper):
    theirs = functools.wraps(Backend.plan)(lambda *args: Backend.plan(*args))
    around = wrapt.FunctionWrapper(vars(Backend)["plan"], lambda wrapped, instance, args, kwargs: wrapped(*args, **kwargs))
    assert WrappedTarget.of(vars(Backend)["plan"]) is wrapper
    assert not any(map(WrappedTarget.of, (theirs, around, wrapper.wrapped, None)))


def test_another_copys_wrapper_is_foreign(wrapper):
    """As of a second attnfix in the same process: same names, another class."""
    theirs = type("EngineProxy", (wrapt.FunctionWrapper,), {})(wrapper.wrapped, lambda *args: None)
    theirs._self_target = wrapper
    assert WrappedTarget.of(theirs) is None


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_pickles_as_the_engines_own_does(wrapper, protocol):
    standing, unbound, bound = (
        pickle.loads(pickle.dumps(one, protocol)) for one in (vars(Backend)["plan"], Backend.plan, Backend().plan)
    )
    assert standing(Backend(), 4) == unbound(Backend(), 4) == bound(4) == 110 and type(bound.__self__) is Backend


def test_it_copies_as_the_engines_own_does(wrapper):
    backend = Backend()
    held = [backend.plan, backend]
    method, of = copy.deepcopy(held)
    assert method.__self__ is of is not backend and method(4) == 110
    assert copy.copy(backend.plan).__self__ is backend and copy.copy(Backend.plan)(backend, 4) == 110
    standing = vars(Backend)["plan"]
    assert copy.copy(standing) is copy.deepcopy(standing) is standing


def test_a_method_that_an_heir_got_pickles_under_its_name_there(monkeypatch):
    heir = type("Third", (Backend,), {"__module__": __name__})
    monkeypatch.setattr(sys.modules[__name__], "Third", heir, raising=False)
    made = WrappedTarget(inspect.getattr_static(heir, "plan"), CodePath(__name__, "Third.plan")).add(armed(FIXES[0]), one_more)
    monkeypatch.setattr(heir, "plan", made.function, raising=False)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(vars(heir)["plan"], protocol))(heir(), 4) == 110
        assert pickle.loads(pickle.dumps(heir().plan, protocol))(4) == 110
    assert Backend().plan(4) == 8


def test_an_heirs_wrapper_runs_the_one_that_it_inherits(wrapper, monkeypatch):
    heir = type("Third", (Backend,), {"__module__": __name__})
    made = WrappedTarget(inspect.getattr_static(heir, "plan"), CodePath(__name__, "Third.plan")).add(armed(FIXES[1]), one_more)
    monkeypatch.setattr(heir, "plan", made.function, raising=False)
    assert heir().plan(4) == 2 * 6 + 200


# What a correction gets


def method(self, q, k=7, *, scale):
    return q, k, scale


def seen_by(names, method, *args, **kwargs):
    """The arguments of these names, as a correction gets them, and what the call returns."""
    seen = []
    looks = {}
    exec(f"def look(target, instance, {names}): seen.append(({names},))", {"seen": seen}, looks)
    wrapper = WrappedTarget(method, CodePath("engine", "Backend.method")).add(armed(FIXES[0]), passes, looks["look"])
    result = wrapper.function(Backend(), *args, **kwargs)
    return seen[0], result


@pytest.mark.parametrize(
    "args, kwargs", [((1,), {}), ((), {"q": 1}), ((1, 7), {}), ((1,), {"k": 7, "more": 2}), ((), {"out": None, "q": 1})]
)
def test_arguments_come_by_name_however_they_were_written_defaults_included(args, kwargs):
    def forward(self, q, k=7, out=None, **others):
        return q, k, out

    assert seen_by("k, q", forward, *args, **kwargs) == ((7, 1), (1, 7, None))
    assert seen_by("out", forward, *args, **kwargs) == ((None,), (1, 7, None))


def test_one_that_comes_by_name_alone():
    assert seen_by("scale, q", method, 1, scale=2) == ((2, 1), (1, 7, 2))


def test_one_that_this_release_does_not_have_is_the_corrections_own_default():
    def look(target, instance, q, chunk=None):
        return (q, chunk)

    found = by_name(look, method, True)
    assert found(None, None, (1,), {"scale": 2}) == (1, None) and found(None, None, (), {"q": 1, "scale": 2}) == (1, None)


def test_one_that_this_release_does_not_have_may_stand_before_one_that_it_has():
    def look(target, instance, chunk=None, q=3, scale=0):
        return (chunk, q, scale)

    found = by_name(look, method, True)
    assert found(None, None, (1,), {"scale": 2}) == (None, 1, 2) and found(None, None, (), {"q": 1, "scale": 2}) == (None, 1, 2)


def test_one_that_this_release_does_not_have_is_refused_when_the_fix_is_added():
    wrapper = WrappedTarget(method, CodePath("engine", "Backend.method"))
    with pytest.raises(LookupError, match="no parameter chunk"):
        wrapper.add(armed(FIXES[0]), lambda call, instance, chunk: None)
    assert not wrapper.in_use


@pytest.mark.parametrize("args, kwargs", [((1, 2), {}), ((1,), {"k": 2}), ((), {"q": 1, "k": 2})])
def test_a_correction_changes_arguments_by_name(args, kwargs):
    def others(call, instance):
        return call(k=20, scale=30)

    wrapper = WrappedTarget(method, CodePath("engine", "Backend.method")).add(armed(FIXES[0]), others)
    assert wrapper.function(Backend(), *args, scale=3, **kwargs) == (1, 20, 30)


def test_a_function_of_a_module_has_no_instance():
    def merge(start, end=7):
        return start, end

    seen = []

    def look(target, instance, end, start):
        seen.append((instance, start, end))

    function = WrappedTarget(merge, CodePath("engine", "merge")).add(armed(FIXES[0]), passes, look).function
    assert function(1) == function(start=1) == (1, 7) and seen == 2 * [(None, 1, 7)]


def test_parameters_may_have_any_name():
    def forward(self, run, wrapped, args, kwargs, result):
        return run, wrapped, args, kwargs, result

    assert seen_by("args, wrapped", forward, 1, 2, 3, 4, result=5) == ((3, 2), (1, 2, 3, 4, 5))


def tail(self, start, end=2):
    return start, end


@pytest.mark.parametrize("call", [((), {}), ((1, 2, 3), {}), ((1,), {"begin": 2}), ((1,), {"start": 2})])
def test_a_wrong_call_is_the_engines_error_and_disarms_nothing(call):
    args, kwargs = call
    state = armed(FIXES[0])
    wrapper = WrappedTarget(tail, CodePath("engine", "tail.tail")).add(state, lambda call, instance, start: call())
    said = []
    for function in (wrapper.wrapped, wrapper.function):
        with pytest.raises(TypeError) as error:
            function(Backend(), *args, **kwargs)
        said.append(str(error.value))
    assert said[0] == said[1] and state.armed


def test_a_tool_that_puts_other_code_into_the_function_changes_the_engines_own():
    """As sglang's source patcher, which compiles an edited source and sets `__code__`: corrections run around it, until the
    next look finds that the code is another (tests/unit/arming/test_activation.py)."""

    def mine(self, start, end=2):
        return start, end

    standing = WrappedTarget(mine, CodePath("engine", "Backend.mine")).add(armed(FIXES[0]), passes).function
    made = {}
    exec("def mine(self, start, end=2): return 'edited'", mine.__globals__, made)
    standing.__code__ = made["mine"].__code__
    assert type(standing) is EngineProxy and standing(Backend(), 1) == "edited"
