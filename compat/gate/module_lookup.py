"""Modules of this process by name.

When an import ends, Python takes the module out of `sys.modules` and puts it back (`importlib._bootstrap._load_unlocked`): a
thread that looks in between would take it for gone, and a fix on it for replaced. So a module that was there once is there,
until another stands in its place.
"""

from __future__ import annotations

import sys
from types import ModuleType

_seen: dict[str, ModuleType] = {}


def module(name: str) -> ModuleType | None:
    """The module, or None where it was never seen here. Never imports it."""
    found = sys.modules.get(name)
    if found is None:
        return _seen.get(name)
    _seen[name] = found
    return found
