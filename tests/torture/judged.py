"""What the gate says of changed sources: a folder with the witness files of one fix, in which one file at a time is another."""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path

from attnfix.compat import gate, releases
from attnfix.compat.fix import Fix, Place


class Sources:
    """The witness files of `fix` in a release, as `files` holds or changes them: {module: bytes}."""

    def __init__(self, fix: Fix, release: str, home: Path, files: dict[str, bytes] | None = None):
        origin = releases.fetch(fix.engine, release, progress=False) / fix.engine
        self.fix, self.release, self.root = fix, release, home / fix.engine
        self.files: dict[str, bytes] = {}
        for module in dict.fromkeys(place.module for place in fix.places):
            if path := gate.path_of(origin, module):
                self.files[module] = (files or {}).get(module) or path.read_bytes()
                self._path(module, path.relative_to(origin)).write_bytes(self.files[module])

    def _path(self, module: str, relative: Path) -> Path:
        path = self.root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def source(self, module: str) -> str:
        return self.files[module].decode()

    def present(self) -> list[Place]:
        """The witnesses that this release has."""
        return [place for place in self.fix.places if gate.locate(place, self.files.get)]

    def judge(self, module: str, source: bytes) -> gate.Verdict:
        """The gate's verdict where `module` has another source."""
        path = gate.path_of(self.root, module)
        assert path is not None
        path.write_bytes(source)
        try:
            return gate.judge(self.fix, self.root)
        finally:
            path.write_bytes(self.files[module])

    def same_as(self, release: str, module: str, source: str) -> bool:
        """Whether all witnesses are written as in `release` where `module` has this source: by `ast.dump`, not by digests."""
        read = gate.Sources(releases.fetch(self.fix.engine, release, progress=False) / self.fix.engine)
        here = {**self.files, module: source.encode()}
        return all(_written(place, here.get) == _written(place, read) for place in self.fix.places)


def _written(place: Place, read: gate.READ) -> str | None:
    """A witness without docstrings, as text."""
    node = deepcopy(gate.witness(place, read))
    for child in ast.walk(node) if node else ():
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(child) is not None:
            child.body = child.body[1:]
    return node and ast.dump(node)


@contextmanager
def sources(fix: Fix, release: str, files: dict[str, bytes] | None = None) -> Iterator[Sources]:
    with tempfile.TemporaryDirectory(prefix="attnfix-mutants-") as home:
        made = Sources(fix, release, Path(home), files)
        with _once(frozenset(made.files.values())):
            yield made


@contextmanager
def _once(unchanged: frozenset[bytes]) -> Iterator[None]:
    """The gate keeps little, since memory counts where engines serve. Here trees and digests of files that stay as they are are
    made once; a changed file always goes the gate's own way."""
    stock = {name: getattr(gate, name) for name in ("parsed", "_digest")}
    for name, function in stock.items():
        kept = cache(function if name == "_digest" else ast.parse)
        setattr(gate, name, lambda data, *rest, kept=kept, own=function: (kept if data in unchanged else own)(data, *rest))
    try:
        yield
    finally:
        for name, function in stock.items():
            setattr(gate, name, function)
