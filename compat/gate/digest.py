"""Digest of one function, class or module: what the gate compares instead of version strings.

The text of a digest is our own canonical walk of the AST, so that comments, docstrings, formatting and the Python version
that reads the file make no difference, and everything else does. `ast.dump` and `ast.unparse` are not usable here: their
text differs between Python 3.11, 3.12 and 3.13.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from typing import cast

from . import bindings

#: Changes whenever the same source would give another digest; a ledger of another format is not read.
DIGEST_FORMAT = 2

_LEFT_OUT = frozenset({"ctx", "kind", "type_comment"})
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def digest(tree: ast.Module, qualname: str) -> str | None:
    """Digest of `qualname` in `tree`: sha256, as 64 hex digits, of the canonical serialisation of its definition, and of what
    binds the global names that it reads. None if it is not defined there."""
    node = in_context(tree, qualname)
    if node is None:
        return None
    written = _serialised(bindings.only(node, qualname)) + bindings.of(tree, node, qualname, _serialised)
    return hashlib.sha256(written.encode()).hexdigest()


def _serialised(node: object) -> str:
    return "".join(_canonical(node))


def find(tree: ast.Module, qualname: str) -> ast.AST | None:
    """The definition of `qualname` ("Class.method", "function", "" for the whole module), or None if there is none.

    Definitions under `if`, `match`, `try` and `with` count. Where a name is bound more than once, by `def`, `class` or
    assignment, the result is a module that holds all of them: any change to one of them changes the digest.
    """
    node: ast.AST = tree
    for name in filter(None, qualname.split(".")):
        found = [child for child in statements(node) if name in names(child)]
        if not found:
            return None
        node = found[0] if len(found) == 1 else ast.Module(body=found, type_ignores=[])
    return node


def definitions(tree: ast.AST, qualname: str) -> Iterator[tuple[ast.stmt, ...]]:
    """Each single definition of `qualname`, behind the classes around it, the outermost first.

    Unlike `find` it looks into a class whose name is bound more than once, as by an assignment to one of its attributes.
    """
    name, _, rest = qualname.partition(".")
    for child in statements(tree):
        if name in names(child):
            if not rest:
                yield (child,)
            elif isinstance(child, ast.ClassDef):
                yield from ((child, *inner) for inner in definitions(child, rest))


def in_context(tree: ast.Module, qualname: str) -> ast.AST | None:
    """As `find`, inside the heads of its classes: their decorators, bases and keywords decide about a method, too."""
    node = find(tree, qualname)
    owner = qualname.rpartition(".")[0]
    while owner and node is not None:
        outer = find(tree, owner)
        if isinstance(outer, ast.ClassDef):
            node = ast.ClassDef(outer.name, outer.bases, outer.keywords, [cast(ast.stmt, node)], outer.decorator_list)
        owner = owner.rpartition(".")[0]
    return node


def digest_of(source: str, qualname: str) -> str | None:
    """Digest of `qualname` in `source`; None if it is not defined there. Raises SyntaxError for a broken file."""
    return digest(ast.parse(source), qualname)


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Statements that bind names in the scope of `node`: its own blocks, not those of inner functions and classes."""
    for block in _BLOCKS:
        for child in getattr(node, block, ()):
            if isinstance(child, ast.stmt):
                yield child
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from statements(child)


def names(statement: ast.stmt) -> set[str]:
    """What a statement binds, and what it sets an attribute of: `Class.method = other` is a change of the class, too."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        targets = [statement.target]
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _canonical(value: object) -> Iterator[str]:
    if isinstance(value, ast.AST):
        yield f"({type(value).__name__}"
        for name in sorted(value._fields):
            field = getattr(value, name, None)
            if name == "body" and isinstance(value, _DOCUMENTED):
                field = _without_docstring(value.body)
            keep_none = name == "value" and isinstance(value, ast.Constant)
            if name in _LEFT_OUT or (field is None and not keep_none) or field == []:
                continue
            yield f" {name}="
            yield from _canonical(field)
        yield ")"
    elif isinstance(value, list):
        yield "["
        for item in value:
            yield from _canonical(item)
            yield ","
        yield "]"
    else:
        yield _text(value)


def _text(value: object) -> str:
    """A constant, spelt the same by every Python version (`repr` of a string depends on its Unicode tables)."""
    if isinstance(value, str):
        return "str:" + value.encode("utf-8", "surrogatepass").hex()
    if isinstance(value, bytes):
        return "bytes:" + value.hex()
    if isinstance(value, bool) or value is None or value is Ellipsis:
        return repr(value)
    if isinstance(value, int):
        return "int:" + hex(value)
    if isinstance(value, float):
        return "float:" + value.hex()
    if isinstance(value, complex):
        return f"complex:{value.real.hex()},{value.imag.hex()}"
    raise TypeError(f"no canonical text for a {type(value).__name__} in an AST")


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0].value if body and isinstance(body[0], ast.Expr) else None
    return body[1:] if isinstance(first, ast.Constant) and isinstance(first.value, str) else body
