"""The parts of a release: its functions and methods, and what its modules and classes bind. Each has its text in a plain form.

Comments, docstrings, logging, annotations, imports inside functions and formatting are left out of that text.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sqlite3
import sys
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from attnfix.compat import untrusted
from attnfix.compat.gate.digest import names, statements
from scripts.radar import scope

#: Changes whenever a file would give other parts
FORMAT = 3
_FEW = 40  # files that are read without a second process
_LOGGING = re.compile(r"(?:self\.)?(?:_?logger|log|logging|warnings)\.\w+|print|log_\w+|print_\w+")


class Part(NamedTuple):
    """path: below site-packages; first, last: lines; text: a statement a line; comments: those on lines of their own."""

    path: str
    name: str
    first: int
    last: int
    text: str
    comments: tuple[str, ...]

    @property
    def leaf(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class Parts(dict[tuple[str, str], Part]):
    """{(path, name): part} of one release."""


def of_release(site: Path, engine: str, cache: Path) -> Parts:
    """The parts of the release that lies in `site`. cache: file that keeps those of each source file.

    Raises FileNotFoundError where it has no Python file of the engine.
    """
    package = site / engine
    files = sorted(path for path in package.rglob("*.py") if path.is_file())
    if not files:
        raise FileNotFoundError(f"{site.name} has no Python files of {engine}.")
    contents: dict[str, bytes] = {}
    for file in files:
        if scope.kind(engine, str(file.relative_to(package))):
            contents[str(file.relative_to(site))] = file.read_bytes()
    found = Parts()
    for path, parts in zip(contents, _cached(contents, cache)):
        for name, first, last, text, comments in parts:
            found[path, name] = Part(path, name, first, last, text, tuple(comments))
    return found


def of_source(source: bytes, path: str = "") -> list[tuple[str, int, int, str, list[str]]]:
    """(name, first line, last line, text, comments) of each part, in order; none for what is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        print(untrusted.line(f"{path} is left out: {error}"), file=sys.stderr)
        return []
    lines = source.decode("utf-8", "replace").split("\n")  # as ast counts them
    found: dict[str, tuple[int, int, str, list[str]]] = {}
    for name, first, last, node in _parts(tree, ""):
        before = found.get(name, (first, last, "", []))
        comments = [line.strip(" #") for line in lines[first - 1 : last] if line.lstrip().startswith("#")]
        text = ast.unparse(ast.fix_missing_locations(_Plain().plain(node)))
        found[name] = (before[0], last, f"{before[2]}\n{text}".strip(), before[3] + comments)
    return [(name, *rest) for name, rest in found.items()]


def _parts(scope_of: ast.AST, prefix: str) -> Iterator[tuple[str, int, int, ast.AST]]:
    for node in statements(scope_of):
        first = min([node.lineno, *(found.lineno for found in getattr(node, "decorator_list", ()))])
        last = node.end_lineno or node.lineno
        if isinstance(node, ast.ClassDef):
            yield from _parts(node, f"{prefix}{node.name}.")
            node.body = [ast.Pass()]
            yield f"{prefix}{node.name}", first, node.lineno, node
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name, node.name = node.name, "_"
            yield f"{prefix}{name}", first, last, node
        elif not isinstance(node, (ast.Import, ast.ImportFrom)) and (bound := names(node)):
            yield prefix + ",".join(sorted(bound)), first, last, node


class _Plain(ast.NodeTransformer):
    """Takes out of a part what decides nothing."""

    def plain(self, part: ast.AST) -> ast.AST:
        return self.visit(part) or ast.Pass()

    def visit(self, node: ast.AST) -> ast.AST | None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return None
        if isinstance(node, ast.Expr) and _says_only(node.value):
            return None
        if isinstance(node, (ast.Raise, ast.Assert)):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    inner.value = ""
            if isinstance(node, ast.Assert):
                node.msg = None
        self.generic_visit(node)
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            return ast.Assign([node.target], node.value) if node.value else ast.Expr(node.target)
        if getattr(node, "body", None) == []:
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
        return node


def _says_only(value: ast.expr) -> bool:
    """A docstring, or a call that logs."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str)
    return isinstance(value, ast.Call) and bool(_LOGGING.fullmatch(ast.unparse(value.func)))


def _cached(contents: dict[str, bytes], cache: Path) -> Iterable[list[tuple[str, int, int, str, list[str]]]]:
    keys = {path: f"{FORMAT} {hashlib.sha256(content).hexdigest()}" for path, content in contents.items()}
    cache.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(cache, timeout=60) as database:
        database.execute("CREATE TABLE IF NOT EXISTS files (sha256 TEXT PRIMARY KEY, parts BLOB)")
        asked = (database.execute("SELECT parts FROM files WHERE sha256 = ?", (key,)).fetchone() for key in keys.values())
        rows = {key: row[0] for key, row in zip(keys.values(), asked) if row}
        new = {path: content for path, content in contents.items() if keys[path] not in rows}
        if len(new) > _FEW:
            with ProcessPoolExecutor(2) as pool:
                made = list(pool.map(of_source, new.values(), new, chunksize=16))
        else:
            made = [of_source(content, path) for path, content in new.items()]
        added = {keys[path]: zlib.compress(json.dumps(parts).encode()) for path, parts in zip(new, made)}
        database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?)", added.items())
    return [json.loads(zlib.decompress((rows | added)[keys[path]])) for path in contents]
