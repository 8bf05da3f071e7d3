"""References to a function that were taken before it was wrapped: bound methods kept by instances, names imported from it.

Needed only when attnfix is activated after a target module was loaded; what cannot be rebound is named, and the fix is `late`.
"""

from __future__ import annotations

import gc
import sys
from types import FrameType, FunctionType, MethodType
from typing import Any

from .wrapping import TargetWrapper


def rebind(function: FunctionType, wrapper: TargetWrapper) -> str | None:
    """Point every captured reference to `function` at `wrapper`; the description of one that cannot be, or None."""
    modules = {id(vars(module)) for module in list(sys.modules.values()) if hasattr(module, "__dict__")}
    referrers = gc.get_referrers(function)
    wrappers = [holder for holder in referrers if type(holder) is TargetWrapper]
    ours = {id(held) for one in wrappers for held in (one, vars(one.function), *(one.function.__closure__ or ()))}
    for holder in referrers:
        if type(holder) is FrameType or id(holder) in ours:
            continue
        if isinstance(holder, MethodType):
            if left := _rebind_method(holder, wrapper, referrers):
                return left
        elif isinstance(holder, dict) and id(holder) in modules:
            for name in _names(holder, function):
                holder[name] = wrapper.function
        else:
            return f"a {type(holder).__name__}"
    return None


def bound_to(function: Any, heir: type) -> str | None:
    """What holds `function` bound to an instance of `heir`, taken before the heir had a method of its own; or None."""
    for method in gc.get_referrers(function):
        if isinstance(method, MethodType) and isinstance(method.__self__, heir):
            return f"a {type(method.__self__).__name__}"
    return None


def _rebind_method(method: MethodType, wrapper: TargetWrapper, ours: list[Any]) -> str | None:
    bound = MethodType(wrapper.function, method.__self__)
    for holder in gc.get_referrers(method):
        if holder is ours or type(holder) is FrameType:
            continue
        # Since 3.11 an instance may hold its attributes without a dict of its own
        attributes: Any = holder if isinstance(holder, dict) else getattr(holder, "__dict__", None)
        names = _names(attributes or {}, method)
        if not names:
            return f"a {type(holder).__name__}"
        for name in names:
            attributes[name] = bound
    return None


def _names(attributes: dict, wanted: Any) -> list[str]:
    """Names under which `wanted` itself is held. A loop of its own: a closure here would be one more reference to it."""
    found = []
    for name, value in attributes.items():
        if value is wanted:
            found.append(name)
    return found
