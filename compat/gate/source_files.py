"""The source files of an engine's package: found by path alone, read and hashed once for all fixes judged at a time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cached_property
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from ..engines import version_beside

#: In the order in which Python looks for them
_SUFFIXES = (*EXTENSION_SUFFIXES, ".py", ".pyc")

READ = Callable[[str], "bytes | None"]


def path_of(root: Path, module: str) -> Path | None:
    """Source file of `module` under the package folder `root`, found by path alone: `find_spec` would import its parents.

    None where there is none, or where Python would import something else: a compiled module comes before a source of its name,
    and a package before a module.
    """
    stem = os.path.join(root, *module.split(".")[1:])
    # `Path` takes five times as long, in every process that serves
    for path in (prefix + suffix for prefix in (os.path.join(stem, "__init__"), stem) for suffix in _SUFFIXES):
        if os.path.isfile(path):
            return Path(path) if path.endswith(".py") else None
    return None


class Source:
    """One file. `stamp` changes when it is replaced; it is taken first, so that it never belongs to newer code than `data`."""

    def __init__(self, path: Path):
        self.path, found = path, os.stat(path)
        self.stamp = found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    @cached_property
    def data(self) -> bytes:
        return self.path.read_bytes()

    @cached_property
    def lines(self) -> list[bytes]:
        return self.data.splitlines()

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


class Sources:
    """The files of the package folder `root` by module: each is looked up, read and hashed once, for all fixes that are judged
    at a time. Called, it is the `READ` of what they hold. `version` is what the engine calls itself, where that is known."""

    def __init__(self, root: Path, version: str | None = None):
        self.root, self._version = root, version
        self._found: dict[str, Source | None] = {}

    def __getitem__(self, module: str) -> Source | None:
        if module not in self._found:
            path = path_of(self.root, module)
            self._found[module] = None if path is None else Source(path)
        return self._found[module]

    def __call__(self, module: str) -> bytes | None:
        return None if (source := self[module]) is None else source.data

    @cached_property
    def version(self) -> str | None:
        return self._version or version_beside(self.root)
