"""wrapt, never taken from the folder that the program was started in.

`python -m sglang.launch_server` has that folder first on its path: a stray `wrapt.py` there would run because attnfix is
installed, and for no other reason. packaging needs no such care, since both engines import it from the same path.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class _Finder:
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, _installed()) if name == "wrapt" else None


def wrapt() -> ModuleType:
    """The package. Where it lies nowhere else, Python's own order holds."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        return import_module("wrapt")
    finally:
        sys.meta_path.remove(finder)


def _installed() -> list[str]:
    """`sys.path` without the folder of the script and the working directory, which Python puts there."""
    script = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    try:
        own = {os.path.realpath(os.curdir), os.path.realpath(os.path.dirname(script))}
        return [entry for entry in sys.path if entry and os.path.realpath(entry) not in own]
    except OSError:  # the working directory is gone
        return [entry for entry in sys.path if os.path.isabs(entry)]
