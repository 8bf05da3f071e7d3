"""What the global names of a definition stand for, as far as its file's syntax shows: part of its digest.

`torch.exp` is as right as `import torch` says. Every statement at module level that binds a name which a witness reads counts,
with the conditions around it: for an import the one name, never the others of its line. Of a function or class of the file
its kind alone counts: its body is a witness where it decides. One hop: what an assignment itself reads is not followed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import groupby

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
#: What decides, or binds, at the head of a block
_HEADS = ("test", "items", "target", "iter", "subject", "type", "pattern", "guard")
_STAR = "*"
Text = Callable[[object], str]


def of(tree: ast.Module, node: ast.AST, qualname: str, text: Text) -> str:
    """The bindings in `tree` of what `node`, the definition of `qualname`, reads; `text` is the canonical one of a node."""
    if not qualname:  # a whole module holds them
        return ""
    bound, wanted = _bindings(tree, text), {*read(node), qualname.partition(".")[0]}
    found = sorted(wanted & bound.keys()) + ([_STAR] if _STAR in bound and wanted - bound.keys() else [])
    return "".join(f"(global {name} {''.join(one for one, _ in groupby(bound[name]))})" for name in found)


def only(statement: ast.AST, name: str) -> ast.AST:
    """`statement`; of an import, the part that binds `name`."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return next((node for bound, node in _bound(statement) if bound == name), statement)
    return statement


def read(node: ast.AST) -> Iterator[str]:
    """Names in `node`, of locals too; none of an annotation, which decides nothing."""
    if isinstance(node, ast.Name):
        yield node.id
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, ast.AST):
                    yield from read(child)


@lru_cache(maxsize=2)
def _bindings(tree: ast.Module, text: Text) -> dict[str, list[str]]:
    """Per name of the module what binds it, in the file's order; then what functions bind by `global`."""
    found: dict[str, list[str]] = {}
    for where, statement in _placed(tree, "", text):
        for name, node in _bound(statement):
            found.setdefault(name, []).append(f"{where}{text(node)}")
    for function in (node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)):
        inside = list(_placed(function, f"in {function.name} ", text))
        shared = {name for _, statement in inside if isinstance(statement, ast.Global) for name in statement.names}
        for where, statement in inside if shared else ():
            for name, node in _bound(statement):
                if name in shared:
                    found.setdefault(name, []).append(f"{where}{text(node)}")
    return found


def _placed(node: ast.AST, where: str, text: Text) -> Iterator[tuple[str, ast.stmt]]:
    """The statements in the scope of `node`, each behind the heads of the blocks around it."""
    for block in _BLOCKS:
        for child in getattr(node, block, ()):
            if isinstance(child, ast.stmt):
                yield where, child
            if not isinstance(child, _DEFINITIONS) and any(hasattr(child, inner) for inner in _BLOCKS):
                heads = "".join(text(head) for name in _HEADS if (head := getattr(child, name, None)) is not None)
                yield from _placed(child, f"{where}{block} {type(child).__name__} {heads} ", text)


def _bound(statement: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    """(name, what binds it) of one statement; of a block, its head."""
    if isinstance(statement, _DEFINITIONS):
        yield statement.name, ast.Constant(type(statement).__name__)
    elif isinstance(statement, ast.Import):
        for alias in statement.names:  # `import a.b` binds `a`
            name = alias.asname or alias.name.partition(".")[0]
            yield name, ast.Import([ast.alias(alias.name if alias.asname else name, name)])
    elif isinstance(statement, ast.ImportFrom):
        for alias in statement.names:
            name = alias.asname or alias.name
            yield name, ast.ImportFrom(statement.module, [ast.alias(alias.name, name)], statement.level)
    elif isinstance(statement, (ast.For, ast.AsyncFor)):
        head = ast.comprehension(statement.target, statement.iter, [], 0)
        yield from ((name, head) for name in _stored(statement.target))
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        for item in statement.items:
            yield from ((name, item) for name in _stored(item))
    elif isinstance(statement, (ast.If, ast.While)):
        yield from ((name, statement.test) for name in _stored(statement.test))
    elif isinstance(statement, ast.AnnAssign):
        if statement.value is not None:  # without one it binds nothing
            plain = ast.Assign([statement.target], statement.value)
            yield from ((name, plain) for name in _stored(plain))
    elif not any(hasattr(statement, block) for block in _BLOCKS):
        yield from ((name, statement) for name in _stored(statement))


def _stored(node: ast.AST) -> dict[str, None]:
    """What `node` binds or deletes, and what it sets an attribute or an element of."""
    names: dict[str, None] = {}
    for part in ast.walk(node):
        if isinstance(getattr(part, "ctx", None), (ast.Store, ast.Del)):
            while isinstance(part, (ast.Attribute, ast.Subscript, ast.Starred)):
                part = part.value
            if isinstance(part, ast.Name):
                names[part.id] = None
    return names
