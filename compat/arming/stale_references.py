"""References to a function that were taken before it was wrapped: names imported from its module, bound methods that are kept.

Needed only when attnfix is activated after a target module was loaded. Imported names are rebound; whatever else holds the
function is named, the fix is `late`, and the process has to be started again.
"""

from __future__ import annotations

import gc
import sys
from types import FrameType, FunctionType, MethodType
from typing import Any

from .wrapper import Correction, EngineProxy, WrappedTarget

_OURS = FrameType, Correction, EngineProxy, WrappedTarget


def rebind(function: FunctionType, wrapper: WrappedTarget) -> str | None:
    """Point every imported name of `function` at `wrapper`. Where anything else holds it: do nothing, and say what holds it."""
    if held := _rebind(function, wrapper):
        gc.collect()  # an instance in a dead circle holds it, too, and nobody can call that
        held = _rebind(function, wrapper)
    return held


def _rebind(function: FunctionType, wrapper: WrappedTarget) -> str | None:
    modules = {id(vars(module)) for module in list(sys.modules.values()) if hasattr(module, "__dict__")}
    names: list[tuple[dict[str, Any], str]] = []
    for holder in gc.get_referrers(function):
        if type(holder) in _OURS:
            continue
        if isinstance(holder, dict) and id(holder) in modules:
            for name, value in list(holder.items()):  # no comprehension: its cell would be one more reference
                if value is function:
                    names.append((holder, name))
        else:
            kept = holder.__self__ if isinstance(holder, MethodType) else holder
            return f"a {type(kept).__name__}"
    for namespace, name in names:
        namespace[name] = wrapper.function
    return None


def bound_to(function: Any, heir: type) -> str | None:
    """What holds `function` bound to an instance of `heir`, taken before the heir had a method of its own; or None."""
    for method in gc.get_referrers(function):
        if isinstance(method, MethodType) and isinstance(method.__self__, heir):
            return f"a {type(method.__self__).__name__}"
    return None
