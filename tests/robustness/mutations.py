"""Mutants of one definition in a module's source: the same file but for one change in the AST of that definition or its class.

Every change makes other code. Docstrings are left as they are; what is only written otherwise is `reformatted.py`.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from attnfix.compat.gate import bindings
from attnfix.compat.gate.digest import find, statements

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Definition, number of a node in its walk, what is done to that node; None: the definition goes elsewhere as it is
Site = tuple[ast.AST, int, "Callable[[Any, ast.AST], None] | None"]
_DOCUMENTED = (*_FUNCTIONS, ast.ClassDef, ast.Module)


@dataclass(frozen=True)
class Mutant:
    """`source` is the whole file; `kind` and `what` name the change, its line that of the original."""

    kind: str
    what: str
    source: str


class Mutations:
    """The mutants of the definition of `qualname` in `source`; "" is the whole module."""

    def __init__(self, source: str, qualname: str):
        self.source, self.qualname = source, qualname
        self._tree = _parsed(source)  # shared: changes are made in copies
        self._lines = source.splitlines(keepends=True)
        found = find(self._tree, qualname)
        if found is None:
            raise LookupError(qualname)
        known = set(map(id, ast.walk(self._tree)))
        self._definitions = [found] if id(found) in known and qualname else _without_docstring(found)
        owner = find(self._tree, qualname.rpartition(".")[0])
        self._owner = owner if isinstance(owner, ast.ClassDef) and id(owner) in known else None

    def drawn(self, draw: random.Random) -> Iterator[Mutant]:
        """All mutants in an order drawn by `draw`, the kinds in turn."""
        left = [(kind, draw.sample(sites, len(sites))) for kind, sites in self._sites().items()]
        draw.shuffle(left)
        while left:
            kind, sites = left.pop(0)
            if mutant := self._mutant(kind, sites.pop()):
                yield mutant
            if sites:
                left.append((kind, sites))

    # What can be changed, by kind

    def _sites(self) -> dict[str, list[Site]]:
        found: dict[str, list[Site]] = {}
        for definition in self._definitions:
            left_out = _docstrings(definition)
            for number, node in enumerate(ast.walk(definition)):
                if id(node) not in left_out:
                    for kind, change in _changes(node):
                        found.setdefault(kind, []).append((definition, number, change))
            if isinstance(definition, _FUNCTIONS):
                found.setdefault("function moved", []).append((definition, 0, None))
        for statement, change in self._imports() if self.qualname else ():
            found.setdefault("import line of a global changed", []).append((statement, 0, change))
        if self._owner:
            for kind, change in _of_class(self._owner):
                found.setdefault(f"{kind} of its class", []).append((self._owner, 0, change))
        return found

    def _imports(self) -> Iterator[tuple[ast.AST, Callable]]:
        """Imports of the module, of a name that the definition reads."""
        wanted = {name for definition in self._definitions for name in bindings.read(definition)}
        for statement in statements(self._tree):
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                for number, alias in enumerate(statement.names):
                    if (alias.asname or alias.name.partition(".")[0]) in wanted:
                        yield statement, partial(_imported_from_elsewhere, number)

    def _mutant(self, kind: str, site: Site) -> Mutant | None:
        definition, number, change = site
        if change is None:
            return Mutant(kind, f"{kind}: {self.qualname}", self._without(definition))
        before = _head(definition) if definition is self._owner else definition
        copy = deepcopy(before)
        node = next(node for at, node in enumerate(ast.walk(copy)) if at == number)
        what = f"{kind} at line {getattr(node, 'lineno', 0)}: {ast.unparse(node).partition(chr(10))[0][:60]}"
        change(node, copy)
        if ast.dump(copy) == ast.dump(before):
            return None
        return Mutant(kind, what, self._with_head(copy) if definition is self._owner else self._with(definition, copy))

    # The file with one definition replaced, all other lines as they were

    def _with(self, old: Any, new: Any) -> str:
        return self._spliced(_first_line(old), old.end_lineno, old.col_offset, _text(new))

    def _with_head(self, new: Any) -> str:
        """Another head of the class; its body stays."""
        owner: Any = self._owner
        head = _text(new).rpartition("\n")[0]  # without the `pass` of its body
        return self._spliced(_first_line(owner), _first_line(owner.body[0]) - 1, owner.col_offset, head)

    def _spliced(self, first: int, last: int, indent: int, text: str) -> str:
        block = "".join(f"{' ' * indent}{line}\n" for line in text.split("\n"))
        return "".join(self._lines[: first - 1]) + block + "".join(self._lines[last:])

    def _without(self, definition: Any) -> str:
        """The function at another place: a method becomes a function of the module, a function a method."""
        text = ast.unparse(definition)
        rest = self._spliced(_first_line(definition), definition.end_lineno, definition.col_offset, "pass")
        if self._owner:
            return f"{rest}\n\n{text}\n"
        moved = "".join(f"    {line}\n" for line in text.splitlines())
        return f"{rest}\n\nclass Moved:\n{moved}"


@lru_cache(maxsize=32)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _head(owner: Any) -> ast.ClassDef:
    """The class without what is in it."""
    return ast.ClassDef(owner.name, owner.bases, owner.keywords, [ast.Pass()], owner.decorator_list, lineno=owner.lineno)


def _text(node: Any) -> str:
    return ast.unparse(ast.fix_missing_locations(node))


def _first_line(node: Any) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])


def _without_docstring(module: Any) -> list[ast.AST]:
    return module.body[1:] if module.body and _is_docstring(module.body[0]) else module.body


def _docstrings(within: ast.AST) -> set[int]:
    return {
        id(part)
        for node in ast.walk(within)
        if isinstance(node, _DOCUMENTED) and node.body and _is_docstring(node.body[0])
        for part in ast.walk(node.body[0])
    }


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


# Changes: each takes the node and the copy of the definition that holds it


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable]]:
    if isinstance(node, ast.stmt):
        yield "statement removed", _removed
        yield "statement moved", _swapped
    if isinstance(node, ast.Constant):
        yield "constant changed", _constant
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp, ast.Compare, ast.UnaryOp)):
        yield "operator changed", _operator
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield "condition turned", _turned
    if isinstance(node, ast.arguments):
        yield "argument added", _argument_added
    if isinstance(node, ast.arg):
        yield "argument renamed", _argument_renamed
    if isinstance(node, _FUNCTIONS):
        yield "decorator added", _decorated
    if isinstance(node, ast.ClassDef):
        yield from _of_class(node)


def _of_class(node: ast.ClassDef) -> Iterator[tuple[str, Callable]]:
    yield "decorator added", _decorated
    yield "base class added", _base_added
    if node.bases:
        yield "base class changed", _base_changed


def _block(node: ast.AST, copy: ast.AST) -> list | None:
    """The list of statements that holds `node`."""
    for parent in ast.walk(copy):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and any(each is node for each in block):
                return block
    return None


def _removed(node: ast.stmt, copy: ast.AST) -> None:
    if (block := _block(node, copy)) is not None:
        at = block.index(node)
        block[at : at + 1] = [] if len(block) > 1 else [ast.Pass()]


def _swapped(node: ast.stmt, copy: ast.AST) -> None:
    if (block := _block(node, copy)) is not None and (at := block.index(node)) + 1 < len(block):
        block[at], block[at + 1] = block[at + 1], block[at]


def _constant(node: ast.Constant, copy: ast.AST) -> None:
    value = node.value
    if isinstance(value, bool):
        node.value = not value
    elif isinstance(value, (int, float)):
        node.value = value + 1
    elif isinstance(value, str):
        node.value = value + "_2"
    else:
        node.value = 0


_OTHER: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult, ast.And: ast.Or, ast.Or: ast.And, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.Not: ast.UAdd,
    ast.USub: ast.UAdd, ast.UAdd: ast.USub, ast.Invert: ast.UAdd, ast.MatMult: ast.Mult, ast.BitXor: ast.BitOr,
}  # fmt: skip


def _operator(node: Any, copy: ast.AST) -> None:
    if isinstance(node, ast.Compare):
        node.ops[0] = _OTHER[type(node.ops[0])]()
    else:
        node.op = _OTHER[type(node.op)]()


def _turned(node: Any, copy: ast.AST) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _argument_added(node: ast.arguments, copy: ast.AST) -> None:
    node.kwonlyargs.append(ast.arg("one_more"))
    node.kw_defaults.append(ast.Constant(None))


def _argument_renamed(node: ast.arg, copy: ast.AST) -> None:
    """In the signature and wherever it is used: callers that name it are what breaks."""
    for each in ast.walk(copy):
        if isinstance(each, ast.Name) and each.id == node.arg:
            each.id += "_2"
    node.arg += "_2"


def _decorated(node: Any, copy: ast.AST) -> None:
    node.decorator_list.append(ast.Name("staticmethod" if isinstance(node, _FUNCTIONS) else "object", ast.Load()))


def _imported_from_elsewhere(number: int, node: ast.Import | ast.ImportFrom, copy: ast.AST) -> None:
    alias = node.names[number]
    bound = alias.asname or (alias.name if isinstance(node, ast.ImportFrom) else alias.name.partition(".")[0])
    node.names[number] = ast.alias(f"{bound}_2", bound)


def _base_added(node: ast.ClassDef, copy: ast.AST) -> None:
    node.bases.insert(0, ast.Name("dict", ast.Load()))


def _base_changed(node: ast.ClassDef, copy: ast.AST) -> None:
    node.bases[0] = ast.Name("object", ast.Load())
