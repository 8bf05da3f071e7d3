"""One call of a target of a fix, through the one wrapper, around a stand-in for the engine's function."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from attnfix.compat.arming.wrapper import Correction, WrappedTarget
from attnfix.compat.fix import Fix, Override, Target
from attnfix.compat.status.fix_state import FixState


def target_of(fix: Fix, name: str) -> Target | Override:
    """The target whose engine function is called `name`, wherever it lives."""
    wrapped = (one for one in fix.targets if isinstance(one, Target | Override))
    return next(one for one in wrapped if one.code_paths[0].qualname.rpartition(".")[2] == name)


def wrapper(target: Target | Override, function: FunctionType, state: FixState) -> WrappedTarget:
    """`function` stands for the engine's: a plain function with the engine's parameters, `self` first if it is a method."""
    state.armed = True
    return WrappedTarget(function, target.code_paths[0]).add(state, target.correct, target.needed, repeatable=target.repeatable)


def run(target: Target | Override, function: FunctionType, state: FixState, *args: Any, **kwargs: Any) -> Any:
    """What the caller gets for these arguments, the instance first if it is a method. A correction may not fail."""
    result = wrapper(target, function, state).function(*args, **kwargs)
    assert state.armed, state.traceback or state.reason
    return result


def link(target: Target | Override, function: FunctionType, state: FixState) -> Correction:
    """What `needed` gets as `target`, for a test of a helper that takes it."""
    return wrapper(target, function, state).links[0]
