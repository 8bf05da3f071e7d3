"""The one wrapper that stands on a target: runs the corrections of every armed fix, else is a plain pass-through."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from types import FunctionType
from typing import Any, SupportsIndex

import wrapt

from . import loaded
from .fix import Place
from .states import Finding, FixState

#: In the place of a result: the engine's function was not called yet, or has not returned
NOT_CALLED, INSIDE = object(), object()


class Call:
    """What a correction gets as `wrapped`: calls the engine's function and notes how far it came, in `result`.

    So that a correction that fails never takes the engine's result with it: what the engine returned is returned. Where several
    fixes have a correction on the target, `inner` is the call of the next one.
    """

    __slots__ = ("_correction", "_inner", "_instance", "_state", "result")

    def __init__(self, inner: Any, state: FixState, correction: Any = None, instance: Any = None):
        self._inner, self._state, self._correction, self._instance = inner, state, correction, instance

    # The same twice: one call in between would be a tenth of all that a wrapped call costs
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.result = INSIDE
        inner = self._inner
        self.result = result = inner.apply(args, kwargs) if type(inner) is Call else inner(*args, **kwargs)
        return result

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """The same for a `function` that stands for the engine's: its own code with a global bound to something else."""
        self.result = INSIDE
        self.result = result = function(*args, **kwargs)
        return result

    def apply(self, args: tuple, kwargs: dict) -> Any:
        """Run the correction; what the engine gets is its result, or the engine's own where the correction fails."""
        self.result, state = NOT_CALLED, self._state  # the correction around this one may call twice
        if state.confirm and not _confirmed(state):
            return self(*args, **kwargs)
        state.counters.calls += 1
        try:
            return self._correction(self, self._instance, args, kwargs)
        except Exception as error:
            if self.result is INSIDE:
                raise  # the engine's own error
            with suppress(Exception):  # such as no memory for the traceback
                state.fail(f"{self._correction.__name__} raised {type(error).__name__}: {error}")
            return self(*args, **kwargs) if self.result is NOT_CALLED else self.result

    @property
    def engine_function(self) -> FunctionType | None:
        """The engine's method as a plain function; None where another fix's correction runs in between."""
        return getattr(self._inner, "__func__", None)

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


def _confirmed(state: FixState) -> bool:
    confirm, state.confirm = state.confirm, None
    with suppress(Exception):
        if confirm:
            confirm()
    return state.armed


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
        # The pairs that stand here, changed as a whole: a call in another thread has the former ones or the new ones
        pairs: list[tuple[tuple[FixState, Any], ...]] = [()]

        # No method: wrapt looks an attribute of its wrappers up more slowly than this function looks into `pairs`
        def run(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
            inner = wrapped
            for state, correction in pairs[0]:
                if state.armed:
                    inner = Call(inner, state, correction, instance)
            return wrapped(*args, **kwargs) if inner is wrapped else inner.apply(args, kwargs)

        super().__init__(function, run)
        self._self_place, self._self_pairs = place, pairs

    @property
    def corrections(self) -> tuple[tuple[FixState, Any], ...]:
        return self._self_pairs[0]

    def add(self, state: FixState, correction: Any) -> TargetWrapper:
        if all(known is not state for known, _ in self.corrections):
            self._self_pairs[0] += ((state, correction),)
        return self

    def remove(self, state: FixState) -> None:
        self._self_pairs[0] = tuple(pair for pair in self.corrections if pair[0] is not state)

    @property
    def in_use(self) -> bool:
        return bool(self.corrections)

    def __reduce__(self) -> Any:
        owner, _, name = self._self_place.qualname.rpartition(".")
        if not owner:
            return name
        return getattr, (owner_of(self._self_place), name)


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
