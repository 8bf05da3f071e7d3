"""What attnfix needs of others in a serving process, never taken from the folder that the program was started in.

`python -m sglang.launch_server` has that folder first on its path: a stray `packaging.py` there would run because attnfix is
installed, and for no other reason.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_NEEDED = "packaging"


@cache
def packaging_version() -> ModuleType:
    """`packaging.version`. Where it lies nowhere else, Python's own order holds."""
    with _past_the_programs_folder():
        return import_module(f"{_NEEDED}.version")


class _Finder:
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, _installed()) if name == _NEEDED else None


@contextmanager
def _past_the_programs_folder() -> Iterator[None]:
    finder = _Finder()
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]  # has what the import system asks for
    try:
        yield
    finally:
        sys.meta_path.remove(finder)  # type: ignore[arg-type]


def _installed() -> list[str]:
    """`sys.path` without the folder of the script and the working directory, which Python puts there."""
    script = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    try:
        own = {os.path.realpath(os.curdir), os.path.realpath(os.path.dirname(script))}
        return [entry for entry in sys.path if entry and os.path.realpath(entry) not in own]
    except OSError:  # the working directory is gone
        return [entry for entry in sys.path if os.path.isabs(entry)]
