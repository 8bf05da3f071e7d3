"""One correction around one call, as the one wrapper runs it."""

from __future__ import annotations

from types import MethodType
from typing import Any

from attnfix.compat.fix import NOT_NEEDED
from attnfix.compat.wrapping import NO_SELF, NOT_CALLED, Call, through


def call_of(function: Any, state: Any) -> Call:
    """What the only correction of a target gets as `wrapped`. function: a bound method, or a function without `self`."""
    call = Call()
    is_method = isinstance(function, MethodType)
    call.function, call.instance = (function.__func__, function.__self__) if is_method else (function, NO_SELF)
    call.result, call.state, call.inside = NOT_CALLED, state, ()
    return call


def corrected(correction: Any, wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """What the call returns; an error of the correction is raised, and disarms nothing."""
    result = correction(wrapped, instance, args, kwargs)
    return wrapped(*args, **kwargs) if result is NOT_NEEDED else result


def run(function: Any, state: Any, correction: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """What the call returns through the wrapper, whose failure policy holds. `state` is armed by it.

    function: as it is called, without the `instance` that the correction gets.
    """

    def method(_instance: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    state.armed = True
    return through(method, instance, args, kwargs, ((state, correction, ()),))
