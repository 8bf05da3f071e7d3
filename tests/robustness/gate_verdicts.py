"""What the gate says of changed sources: a folder with the witness files of one fix, in which one file at a time is another."""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path

from attnfix.compat.fix import CodePath, Fix
from attnfix.compat.gate import bindings, judge, source_files
from attnfix.compat.releases import fetch


class Sources:
    """The witness files of `fix` in a release, as `files` holds or changes them: {module: bytes}."""

    def __init__(self, fix: Fix, release: str, home: Path, files: dict[str, bytes] | None = None):
        origin = fetch.fetch(fix.engine, release, progress=False) / fix.engine
        self.fix, self.release, self.root = fix, release, home / fix.engine
        self.files: dict[str, bytes] = {}
        for module in dict.fromkeys(code_path.module for code_path in fix.code_paths):
            if path := source_files.path_of(origin, module):
                self.files[module] = (files or {}).get(module) or path.read_bytes()
                self._path(module, path.relative_to(origin)).write_bytes(self.files[module])

    def _path(self, module: str, relative: Path) -> Path:
        path = self.root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def source(self, module: str) -> str:
        return self.files[module].decode()

    def present(self) -> list[CodePath]:
        """The witnesses that this release has."""
        return [code_path for code_path in self.fix.code_paths if judge.locate(code_path, self.files.get)]

    def judge(self, module: str, source: bytes) -> judge.Verdict:
        """The gate's verdict where `module` has another source."""
        path = source_files.path_of(self.root, module)
        assert path is not None
        path.write_bytes(source)
        try:
            return judge.judge(self.fix, self.root)
        finally:
            path.write_bytes(self.files[module])

    def same_as(self, release: str, module: str, source: str) -> bool:
        """Whether all witnesses are written as in `release` where `module` has this source: by `ast.dump`, not by digests."""
        read = source_files.Sources(fetch.fetch(self.fix.engine, release, progress=False) / self.fix.engine)
        here = {**self.files, module: source.encode()}
        return all(_written(code_path, here.get) == _written(code_path, read) for code_path in self.fix.code_paths)


def _written(code_path: CodePath, read: source_files.READ) -> str | None:
    """A witness without docstrings, and what binds the names that it reads, as text."""
    node = deepcopy(judge.witness(code_path, read))
    bound = node and bindings.of(judge.parsed(read(code_path.module) or b""), node, code_path.qualname, ast.dump)
    for child in ast.walk(node) if node else ():
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(child) is not None:
            child.body = child.body[1:]
    return node and f"{ast.dump(node)} {bound}"


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
    stock = {name: getattr(judge, name) for name in ("parsed", "_digest")}
    for name, function in stock.items():
        kept = cache(function if name == "_digest" else ast.parse)
        setattr(judge, name, lambda data, *rest, kept=kept, own=function: (kept if data in unchanged else own)(data, *rest))
    try:
        yield
    finally:
        for name, function in stock.items():
            setattr(judge, name, function)
