"""The one wrapper that stands on a target: runs the corrections of every armed fix, else is a plain pass-through."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from types import FunctionType
from typing import Any, SupportsIndex

import wrapt

from .fix import Place
from .states import Finding, FixState


class Call:
    """What a correction gets as `wrapped`: calls the engine's function and notes how far it came.

    So that a correction that fails never takes the engine's result with it: what the engine returned is returned.
    """

    __slots__ = ("_function", "_state", "entered", "result", "returned")

    def __init__(self, function: Any, state: FixState):
        self._function = function
        self._state = state
        self.entered = self.returned = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(self._function, *args, **kwargs)

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """The same for a `function` that stands for the engine's: its own code with a global bound to something else."""
        self.entered = True
        self.result = function(*args, **kwargs)
        self.returned = True
        return self.result

    @property
    def engine_function(self) -> FunctionType | None:
        """The engine's method as a plain function; None where another fix's correction runs in between."""
        return getattr(self._function, "__func__", None)

    def finding(self, path: tuple[Hashable, ...]) -> Finding | None:
        """What was seen of this kernel path in this process; None before `found`."""
        return self._state.findings.get(path)

    def found(self, path: tuple[Hashable, ...], finding: Finding) -> None:
        """Keep what was seen of a kernel path: it goes into the record; a kernel that is left alone, to the log, too."""
        self._state.found(path, finding)

    def corrected(self, rows: int = 0) -> None:
        """Count one correction of `rows` rows. Host-known numbers only: counting never waits for a GPU."""
        counters = self._state.counters
        counters.corrections += 1
        counters.rows += rows
        if not self._state.fired:
            self._state.first_correction(rows)


def _apply(correction: Any, state: FixState, function: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    state.counters.calls += 1
    call = Call(function, state)
    try:
        return correction(call, instance, args, kwargs)
    except Exception as error:
        if call.entered and not call.returned:
            raise  # the engine's own error
        state.fail(f"{correction.__name__} raised {type(error).__name__}: {error}")
        return call.result if call.returned else function(*args, **kwargs)


class _Named:
    """Pickles and deep-copies as the name it stands for, as the function it wraps would (wrapt's own raises)."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return self.__reduce__()

    def __deepcopy__(self, memo: dict) -> Any:
        return self

    def __copy__(self) -> Any:
        return self


class BoundTarget(_Named, wrapt.BoundFunctionWrapper):
    """A target bound to an instance (or read from its class)."""

    def __reduce__(self) -> Any:
        owner = self._self_instance
        if owner is None:
            return self._self_parent.__reduce__()
        return getattr, (owner, self.__name__)

    def __deepcopy__(self, memo: dict) -> Any:
        from copy import deepcopy

        owner = self._self_instance
        return self if owner is None else getattr(deepcopy(owner, memo), self.__name__)


class TargetWrapper(_Named, wrapt.FunctionWrapper):
    """Wrapper around the engine's function at `place`; `add` puts the correction of one more fix on it.

    Never for a function that Dynamo traces: it would compile the engine's function and drop the corrections (tried).
    """

    __bound_function_wrapper__ = BoundTarget

    def __init__(self, function: FunctionType, place: Place):
        super().__init__(function, self._run)
        self._self_place = place
        self._self_corrections: tuple = ()

    def add(self, state: FixState, correction: Any) -> TargetWrapper:
        if all(known is not state for known, _ in self._self_corrections):
            self._self_corrections += ((state, correction),)
        return self

    def remove(self, state: FixState) -> None:
        self._self_corrections = tuple(pair for pair in self._self_corrections if pair[0] is not state)

    @property
    def in_use(self) -> bool:
        return bool(self._self_corrections)

    def _run(self, wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
        corrections = self._self_corrections
        if len(corrections) == 1:
            state, correction = corrections[0]
            return _apply(correction, state, wrapped, instance, args, kwargs) if state.armed else wrapped(*args, **kwargs)
        function = wrapped
        for state, correction in corrections:
            if state.armed:
                function = _bind(correction, state, function, instance)
        return function(*args, **kwargs)

    def __reduce__(self) -> Any:
        owner, _, name = self._self_place.qualname.rpartition(".")
        if not owner:
            return name
        return getattr, (owner_of(self._self_place), name)


def _bind(correction: Any, state: FixState, function: Any, instance: Any) -> Any:
    return lambda *args, **kwargs: _apply(correction, state, function, instance, args, kwargs)


def owner_of(place: Place) -> Any:
    """The class or module that holds the target, in the modules loaded here. Raises AttributeError or KeyError."""
    owner: Any = sys.modules[place.module]
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
