"""The one wrapper: which corrections run, in what order, and how often the engine's function does."""

from __future__ import annotations

import functools
import inspect
import sys

import pytest

from attnfix.compat import fix as fix_module
from attnfix.compat.fix import NOT_NEEDED, Place
from attnfix.compat.states import FixState
from attnfix.compat.wrapping import TargetWrapper
from attnfix.patches.catalogue import FIXES


def armed(fix):
    state = FixState(fix)
    state.armed = True
    return state


class Target:
    """A function of the engine that doubles, and notes what it was called with."""

    def __init__(self, *corrections):
        self.calls = []
        self.wrapper = TargetWrapper(self._engine(), Place("engine", "function"))
        self.states = [armed(fix) for fix, _ in zip(FIXES, corrections)]
        for state, correction in zip(self.states, corrections):
            self.wrapper.add(state, correction)

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


def not_needed(wrapped, instance, args, kwargs):
    return NOT_NEEDED


def one_more(wrapped, instance, args, kwargs):
    return wrapped(args[0] + 1) + 100


def only_above_5(wrapped, instance, args, kwargs):
    return wrapped(*args, **kwargs) + 1000 if args[0] > 5 else NOT_NEEDED


def broken(wrapped, instance, args, kwargs):
    raise ValueError("ours")


@pytest.mark.parametrize("corrections", [(), (not_needed,), (not_needed,) * 3])
def test_where_none_is_needed_the_engine_runs_once_and_each_was_asked(corrections):
    target = Target(*corrections)
    assert target.wrapper.function(4) == 8 and target.calls == [4] and target.counted == [1] * len(corrections)


@pytest.mark.parametrize("others", [(0, 0), (1, 0), (0, 1), (2, 2)])
def test_one_that_is_needed_runs_whatever_stands_around_it(others):
    target = Target(*[not_needed] * others[0], one_more, *[not_needed] * others[1])
    assert target.wrapper.function(4) == 110 and target.calls == [5] and set(target.counted) == {1}


def test_each_decides_by_the_arguments_that_reach_it():
    inside, outside = Target(only_above_5, one_more), Target(one_more, only_above_5)
    assert (inside.wrapper.function(5), outside.wrapper.function(5)) == (2 * 6 + 1000 + 100, 2 * 6 + 100)
    assert inside.calls == outside.calls == [6]


def test_one_whose_look_fails_is_disarmed_and_the_others_run():
    target = Target(one_more, broken, not_needed)
    assert target.wrapper.function(4) == 110 and target.calls == [5]
    assert [state.armed for state in target.states] == [True, False, True] and "ours" in target.states[1].reason
    assert target.wrapper.function(4) == 110 and target.counted == [2, 1, 2]


def test_an_error_of_the_engine_is_its_own_whoever_looked_before():
    target = Target(not_needed, lambda wrapped, instance, args, kwargs: wrapped(*args), not_needed)
    with pytest.raises(ZeroDivisionError):
        target.wrapper.function(None)
    assert all(state.armed for state in target.states) and target.calls == [None]


def test_not_needed_said_after_the_call_does_not_run_the_engine_twice():
    def too_late(wrapped, instance, args, kwargs):
        wrapped(args[0] + 1)
        return NOT_NEEDED

    target = Target(one_more, too_late)
    assert target.wrapper.function(4) == 112 and target.calls == [6]


def test_what_the_first_call_disarms_is_not_asked():
    target = Target(one_more, one_more)
    target.states[1].confirm = lambda: target.states[1].settle("conflict", "replaced")
    assert target.wrapper.function(4) == 110 and target.counted == [1, 0]


def test_the_engines_function_is_known_to_the_innermost_alone():
    seen = []

    def look(wrapped, instance, args, kwargs):
        seen.append(wrapped.engine_function)
        return NOT_NEEDED

    target = Target(look, look)
    target.wrapper.function(4)
    target.states[0].armed = False
    target.wrapper.function(4)
    assert seen == [None, *2 * [target.wrapper.wrapped]]


def test_a_call_goes_on_with_the_corrections_it_began_with():
    """As when another thread takes one off in the middle of it."""
    target = Target(one_more)

    def takes_it_off(wrapped, instance, args, kwargs):
        target.wrapper.remove(target.states[0])
        return wrapped(*args)

    target.wrapper.add(armed(FIXES[1]), takes_it_off)
    assert (target.wrapper.function(4), target.wrapper.function(4)) == (110, 8)
    assert [correction for _, correction in target.wrapper.corrections] == [takes_it_off]


# What stands in the engine


class Backend:
    """An engine's class."""

    def plan(self, x: int, *, scale: int = 2) -> int:
        """What it does."""
        return x * scale


class Heir(Backend):
    """Overrides, and calls what it overrides."""

    def plan(self, x, **kwargs):
        return super().plan(x, **kwargs) + 1


@pytest.fixture
def wrapper(monkeypatch):
    made = TargetWrapper(Backend.plan, Place(__name__, "Backend.plan")).add(armed(FIXES[0]), one_more)
    monkeypatch.setattr(Backend, "plan", made.function)
    return made


def test_it_binds_as_the_engines_own_does(wrapper):
    assert Backend().plan(4) == Backend.plan(Backend(), 4) == 110
    assert Heir().plan(4) == 111


def test_it_tells_what_the_engines_own_tells_of_itself(wrapper):
    stock = wrapper.wrapped
    assert inspect.signature(Backend.plan) == inspect.signature(stock) and Backend.plan.__doc__ == "What it does."
    assert (Backend.plan.__name__, Backend.plan.__qualname__, Backend.plan.__module__) == ("plan", "Backend.plan", __name__)
    assert inspect.getsource(Backend.plan) == inspect.getsource(stock) and inspect.isfunction(Backend.plan)


def test_what_somebody_wraps_around_it_is_not_taken_for_it(wrapper):
    theirs = functools.wraps(Backend.plan)(lambda *args: Backend.plan(*args))
    assert TargetWrapper.of(Backend.plan) is wrapper
    assert TargetWrapper.of(theirs) is None and TargetWrapper.of(wrapper.wrapped) is None and TargetWrapper.of(None) is None


def test_another_copys_wrapper_is_foreign(monkeypatch):
    """As of a second attnfix in the same process: same names, another class."""
    from attnfix.compat import wrapping

    theirs = type("TargetWrapper", (), {})()
    theirs.function = functools.wraps(Backend.plan)(lambda self: None)
    setattr(theirs.function, wrapping.MARK, theirs)
    assert TargetWrapper.of(theirs.function) is None


def test_a_method_that_an_heir_got_pickles_under_its_name_there(monkeypatch):
    import pickle

    heir = type("Third", (Backend,), {"__module__": __name__})
    monkeypatch.setattr(sys.modules[__name__], "Third", heir, raising=False)
    made = TargetWrapper(heir.plan, Place(__name__, "Third.plan"))
    monkeypatch.setattr(heir, "plan", made.function, raising=False)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(heir.plan, protocol)) is made.function


# What a correction gets


def seen_by(method, *args, by_name=False, **kwargs):
    """(args, kwargs) of the correction of a method, and what the call returns."""
    seen = []

    def look(wrapped, instance, args, kwargs):
        seen.append((args, kwargs))
        return NOT_NEEDED

    wrapper = TargetWrapper(method, Place("engine", "Backend.method"), by_name).add(armed(FIXES[0]), look)
    result = wrapper.function(Backend(), *args, **kwargs)
    return seen[0], result


def method(self, q, k=7, *, scale):
    return q, k, scale


def test_of_a_method_every_argument_by_position_defaults_included():
    default = object()

    def forward(self, q, k=7, out=default, **others):
        return q, k, out, others

    for call in ((1,), {}), ((), {"q": 1}), ((1, 7), {"out": default}), ((1,), {"k": 7, "more": 2}):
        args, kwargs = call
        others = {name: value for name, value in kwargs.items() if name == "more"}
        assert seen_by(forward, *args, **kwargs) == (((1, 7, default), others), (1, 7, default, others))


@pytest.mark.parametrize(
    "method",
    [method, lambda self, *args, **kwargs: (args, kwargs), lambda self, q, /, **kwargs: (q, kwargs)],
    ids=["names alone", "any", "positions alone"],
)
def test_where_an_argument_has_but_one_way_in_they_come_as_passed(method):
    assert seen_by(method, 1, scale=2)[0] == ((1,), {"scale": 2})


@pytest.mark.parametrize("args, kwargs", [((1,), {}), ((), {"q": 1}), ((1,), {"k": 7})])
def test_by_name_every_argument_comes_so_defaults_included(args, kwargs):
    def forward(self, q, k=7, **others):
        return q, k, others

    assert seen_by(forward, *args, by_name=True, **kwargs) == (((), {"q": 1, "k": 7}), (1, 7, {}))
    assert seen_by(forward, *args, by_name=True, more=2, **kwargs)[0] == ((), {"q": 1, "k": 7, "more": 2})


@pytest.mark.parametrize("by_name, expected", [(False, ((1, 7), {})), (True, ((), {"start": 1, "end": 7}))])
def test_a_function_of_a_module_has_no_self(by_name, expected):
    def merge(start, end=7):
        return start, end

    seen = []

    def look(wrapped, instance, args, kwargs):
        seen.append((args, kwargs, wrapped.parameters))
        return wrapped(*args, **kwargs)

    function = TargetWrapper(merge, Place("engine", "merge"), by_name).add(armed(FIXES[0]), look).function
    assert function(1) == function(start=1) == (1, 7)
    assert seen == 2 * [(*expected, ("start", "end"))]


def test_parameters_may_have_any_name():
    def forward(self, run, wrapper, args, kwargs, result):
        return run, wrapper, args, kwargs, result

    assert seen_by(forward, 1, 2, 3, 4, result=5) == (((1, 2, 3, 4, 5), {}), (1, 2, 3, 4, 5))


@pytest.mark.parametrize("call", [((), {}), ((1, 2, 3), {}), ((1,), {"begin": 2}), ((1,), {"start": 2})])
def test_a_wrong_call_is_the_same_error(call):
    args, kwargs = call
    wrapper = TargetWrapper(tail, Place("engine", "tail.tail")).add(armed(FIXES[0]), not_needed)
    said = []
    for function in (wrapper.wrapped, wrapper.function):
        with pytest.raises(TypeError) as error:
            function(Backend(), *args, **kwargs)
        said.append(str(error.value).partition("(")[2])
    assert said[0] == said[1]


def test_the_names_of_what_a_correction_gets():
    names = []

    def look(wrapped, instance, args, kwargs):
        names.extend(zip(wrapped.parameters, args))
        return NOT_NEEDED

    TargetWrapper(tail, Place("engine", "Backend.tail")).add(armed(FIXES[0]), look).function(Backend(), 1, end=3)
    assert names == [("start", 1), ("end", 3)]


def tail(self, start, end=2):
    return start, end


def test_fixes_that_share_a_target_agree_on_what_they_get():
    ways = {}
    for fix in FIXES:
        for target in fix.targets:
            if isinstance(target, fix_module.Target):
                for place in target.places:
                    ways.setdefault(place, set()).add(target.by_name)
    assert all(len(found) == 1 for found in ways.values()), ways


@pytest.mark.parametrize("place", ["engine.Backend.tail", "tail"])
def test_a_tool_that_puts_other_code_into_the_function_is_refused(place):
    """As sglang's source patcher, which compiles an edited source and sets `__code__`: the code would run without our names."""
    standing = TargetWrapper(tail, Place("engine", place)).add(armed(FIXES[0]), not_needed).function
    made = {}
    exec("def tail(self, start, end=2): return 'edited'", standing.__globals__, made)
    with pytest.raises(ValueError, match="free vars"):
        standing.__code__ = made["tail"].__code__
    assert standing(Backend(), 1) == (1, 2)
