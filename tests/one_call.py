"""One correction around one call, as the one wrapper runs it."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import NOT_NEEDED
from attnfix.compat.wrapping import NOT_CALLED, Call, through


def call_of(function: Any, state: Any, instance: Any = None) -> Call:
    """What the only correction of a target gets as `wrapped`."""
    call = Call()
    call.function, call.instance, call.unbound = function, instance, False
    call.result, call.state, call.inside = NOT_CALLED, state, ()
    return call


def corrected(correction: Any, wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """What the call returns; an error of the correction is raised, and disarms nothing."""
    result = correction(wrapped, instance, args, kwargs)
    return wrapped(*args, **kwargs) if result is NOT_NEEDED else result


def run(function: Any, state: Any, correction: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """What the call returns through the wrapper, whose failure policy holds. `state` is armed by it."""
    state.armed = True
    return through(function, instance, args, kwargs, ((state, correction, ()),))
