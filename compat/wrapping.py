"""The one wrapper that stands on a target: runs the corrections of every armed fix, else is a plain pass-through."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from functools import update_wrapper
from inspect import CO_VARARGS, CO_VARKEYWORDS, unwrap
from types import FunctionType
from typing import Any

from . import loaded, serving_failure
from .fix import NOT_NEEDED, Place
from .states import Finding, FixState

#: In the place of a result: the engine's function was not called yet, or has not returned
NOT_CALLED, INSIDE = object(), object()
#: In the place of `self` where the target is a function of a module
NO_SELF = object()
#: Corrections on a target, the outermost first: the state of its fix, the correction, and the layers inside it
Layers = tuple[tuple[FixState, Any, Any], ...]


def asked(function: Any, instance: Any, args: tuple, kwargs: dict, layers: Layers) -> Any:
    """Ask the corrections of all armed fixes in `layers`, the outermost first; the result of the call, or NOT_NEEDED.

    Those that are not needed are passed one after the other, in this frame and with one object for all of them.
    """
    call = Call()
    call.function, call.instance, call.result = function, instance, NOT_CALLED
    for state, correction, inside in layers:
        if not state.armed or (state.confirm and not _confirmed(state)):
            continue
        state.counters.calls += 1
        call.state, call.inside = state, inside
        try:
            result = correction(call, instance, args, kwargs)
        except Exception as error:
            result = call.failed(correction, error)
        if result is not NOT_NEEDED:
            return result
        if call.result is not NOT_CALLED:  # said too late: the engine's function must not run twice
            return call.result
    return NOT_NEEDED


def through(function: Any, instance: Any, args: tuple, kwargs: dict, layers: Layers) -> Any:
    """The same; where no correction is needed the engine's `function` is called."""
    result = asked(function, instance, args, kwargs, layers)
    if result is not NOT_NEEDED:
        return result
    return function(*args, **kwargs) if instance is NO_SELF else function(instance, *args, **kwargs)


class Call:
    """What a correction gets as `wrapped`: calls the engine's function and notes how far it came, in `result`.

    So that a correction that fails never takes the engine's result with it: what the engine returned is returned. Where several
    fixes have a correction on the target, those `inside` this one run in between.
    """

    # Set by `asked`, which a call waits for: an `__init__` costs a tenth of all of it
    __slots__ = ("function", "inside", "instance", "result", "state")
    function: Any
    instance: Any
    inside: Layers
    state: FixState
    result: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.result = INSIDE
        if self.inside:
            result = through(self.function, self.instance, args, kwargs, self.inside)
        elif self.instance is NO_SELF:
            result = self.function(*args, **kwargs)
        else:
            result = self.function(self.instance, *args, **kwargs)
        self.result = result
        return result

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """The same for a `function` that stands for the engine's: its own code with a global bound to something else."""
        self.result = INSIDE
        self.result = result = function(*args, **kwargs)
        return result

    def failed(self, correction: Any, error: Exception) -> Any:
        """Inside an `except`: the policy of `serving_failure`; an error of the engine passes.

        Returns what the engine returned; NOT_NEEDED if it was not called yet.
        """
        if self.result is INSIDE:
            raise
        serving_failure.settle(self.state, correction.__name__, error)
        return NOT_NEEDED if self.result is NOT_CALLED else self.result

    def give_up(self, reason: str) -> None:
        """Disarm the fix for good, from within a correction that has made sure of a result by itself."""
        serving_failure.give_up(self.state, reason)

    @property
    def engine_function(self) -> FunctionType | None:
        """The engine's function, a method's unbound; None where another fix's correction runs in between."""
        return None if any(state.armed for state, *_ in self.inside) else self.function

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of what the engine's function takes by position, `self` aside."""
        code = unwrap(self.function).__code__
        return code.co_varnames[self.instance is not NO_SELF : code.co_argcount]

    def finding(self, path: tuple[Hashable, ...]) -> Finding | None:
        """What was seen of this kernel path in this process; None before `found`."""
        return self.state.findings.get(path)

    def found(self, path: tuple[Hashable, ...], finding: Finding) -> None:
        """Keep what was seen of a kernel path: it goes into the record; a kernel that is left alone, to the log, too."""
        self.state.found(path, finding)

    def corrected(self, rows: int = 0) -> None:
        """Count one correction of `rows` rows. Host-known numbers only: counting never waits for a GPU."""
        counters = self.state.counters
        counters.corrections += 1
        counters.rows += rows
        if not self.state.fired:
            self.state.first_correction(rows)


def _confirmed(state: FixState) -> bool:
    with suppress(Exception):
        if confirm := state.confirm:
            confirm()
    state.confirm = None  # not before: a first call in another thread is not to be corrected meanwhile
    if not state.armed:
        serving_failure.lost(state)
    return state.armed


def _around(layers: Layers, state: FixState, correction: Any) -> Layers:
    return (state, correction, layers), *layers


class TargetWrapper:
    """What stands on the engine's function at `place`: `function`, which runs the corrections of all fixes that were added.

    A plain function, as the engine's own: it binds, pickles and copies by itself and costs half of what wrapt's wrapper does.
    Never for a function that Dynamo traces: it would trace the corrections, too.
    """

    __slots__ = ("_layers", "by_name", "function", "place", "wrapped")

    def __init__(self, wrapped: FunctionType, place: Place, by_name: bool = False):
        self.wrapped, self.place, self.by_name = wrapped, place, by_name
        # Changed as a whole: a call in another thread goes through the former layers or the new ones
        self._layers: Layers = ()
        make = _explicit if _is_explicit(wrapped) else _as_passed
        self.function: Any = update_wrapper(make(self, "." in place.qualname), wrapped)
        # What is inherited stands under the name of the heir; pickle looks a function up by its name
        self.function.__module__, self.function.__qualname__ = place.module, place.qualname
        vars(self.function)[MARK] = self

    @staticmethod
    def of(standing: Any) -> TargetWrapper | None:
        """The wrapper whose function `standing` is; None for anything else, and for what somebody wrapped around it."""
        if type(standing) is not FunctionType:  # `isinstance` believes a foreign wrapper, too
            return None
        found = vars(standing).get(MARK)
        return found if type(found) is TargetWrapper and found.function is standing else None

    @property
    def corrections(self) -> tuple[tuple[FixState, Any], ...]:
        """The innermost first."""
        return tuple((state, correction) for state, correction, _ in reversed(self._layers))

    def add(self, state: FixState, correction: Any) -> TargetWrapper:
        if all(known is not state for known, _ in self.corrections):
            self._layers = _around(self._layers, state, correction)
        return self

    def remove(self, state: FixState) -> None:
        layers: Layers = ()
        for known, correction in self.corrections:
            if known is not state:
                layers = _around(layers, known, correction)
        self._layers = layers

    @property
    def in_use(self) -> bool:
        return bool(self._layers)


#: Where a function says whose it is. `functools.wraps` copies it to what it makes, so the wrapper is asked, too
MARK = "__attnfix__"


def _as_passed(wrapper: TargetWrapper, is_method: bool) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        return through(wrapper.wrapped, NO_SELF, args, kwargs, wrapper._layers)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return through(wrapper.wrapped, self, args, kwargs, wrapper._layers)

    return method if is_method else function


#: With the engine's own parameters: their names are taken, so ours have a prefix. Ours are free variables, and globals the
#: engine's: a tool that would put other code into the function, which needs those, is refused by Python
_EXPLICIT = """
def around(attnfix_wrapper, attnfix_wrapped, attnfix_asked, attnfix_not_needed, attnfix_no_self):
    def run({signature}):
        attnfix_result = attnfix_asked(attnfix_wrapped, {self}, ({by_position}), {{{by_name}}}, attnfix_wrapper._layers)
        return attnfix_wrapped({given}) if attnfix_result is attnfix_not_needed else attnfix_result
    return run
"""


def _is_explicit(function: FunctionType) -> bool:
    """Whether each of its parameters may come by position or by name, but for those that go to a `**`."""
    code = function.__code__
    return not (code.co_flags & CO_VARARGS or code.co_kwonlyargcount or code.co_posonlyargcount)


def _explicit(wrapper: TargetWrapper, is_method: bool) -> Any:
    """The same, where corrections get every argument, its default included, in one way: by position, or by name.

    It costs half: no call by keyword is packed and unpacked again.
    """
    function = wrapper.wrapped
    code = function.__code__
    names = list(code.co_varnames[: code.co_argcount])
    others = code.co_varnames[code.co_argcount] if code.co_flags & CO_VARKEYWORDS else None
    star = [f"**{others}"] if others else []
    told = names[is_method:]
    by_name = [f"{name!r}: {name}" for name in told] if wrapper.by_name else []
    source = _EXPLICIT.format(
        signature=", ".join(names + star), given=", ".join(names + star),
        self=names[0] if is_method else "attnfix_no_self", by_name=", ".join(by_name + star),
        by_position="" if wrapper.by_name else "".join(f"{name}, " for name in told),
    )  # fmt: skip
    made: dict[str, Any] = {}
    compiled = compile(source, f"<attnfix around {wrapper.place.qualname}>", "exec")
    exec(compiled, function.__globals__, made)  # nosec B102: names of the engine's own parameters, and nothing else
    run = made["around"](wrapper, function, asked, NOT_NEEDED, NO_SELF)
    run.__defaults__ = function.__defaults__
    return run


def owner_of(place: Place) -> Any:
    """The class or module that holds the target, in the modules loaded here. Raises AttributeError or KeyError."""
    owner: Any = loaded.module(place.module)
    if owner is None:
        raise KeyError(place.module)
    for name in place.qualname.split(".")[:-1]:
        owner = getattr(owner, name)
    return owner


def live(place: Place) -> Any:
    """The attribute as it stands now, not bound to anything. Raises KeyError if the owner itself does not define it."""
    return vars(owner_of(place))[place.qualname.rpartition(".")[2]]


def stands(place: Place, value: Any) -> bool:
    """Whether `value` is what the attribute holds now."""
    try:
        return live(place) is value
    except (AttributeError, KeyError):
        return False


def swap(place: Place, value: Any) -> None:
    setattr(owner_of(place), place.qualname.rpartition(".")[2], value)
