"""The functions of the engine that a fix's targets call, or whose result they read, found in the sources alone.

Names are resolved as the target's module binds them: definitions and imports of the module and of the function, also through
modules that only pass a name on; `self.method`, `super().method` and properties in the class and its bases; and for an
attribute of `self` that a target reads, the methods of the class that set it. What only an argument's type tells is not found.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache

from attnfix.compat.fix import Attribute, CodePath, Fix
from attnfix.compat.gate import source_files
from attnfix.compat.gate.digest import find, names, statements

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def callees(fix: Fix, read: source_files.READ) -> list[CodePath]:
    """In the order of the sources, without the fix's own places: a change of those is none of a callee."""
    resolver = Resolver(fix.engine, read)
    targets = [code_path for target in fix.targets if not isinstance(target, Attribute) for code_path in target.witnesses]
    found = dict.fromkeys(code_path for target in targets for code_path in resolver.used_by(target))
    return [code_path for code_path in found if not any(within(code_path, witness) for witness in fix.code_paths)]


def within(code_path: CodePath, witness: CodePath) -> bool:
    """Whether a change at `code_path` is one of the witness."""
    return code_path.module == witness.module and f"{code_path.qualname}.".startswith(
        f"{witness.qualname}." if witness.qualname else ""
    )


class Resolver:
    """Places of names over the package that `read` gives the sources of."""

    def __init__(self, engine: str, read: source_files.READ):
        self.engine = engine
        self.tree: Callable[[str], ast.Module | None] = cache(
            lambda module: None if (data := read(module)) is None else ast.parse(data)
        )

    def used_by(self, code_path: CodePath) -> Iterator[CodePath]:
        tree = self.tree(code_path.module)
        function = find(tree, code_path.qualname) if tree else None
        if function is None:
            return
        for node in ast.walk(function):
            if isinstance(node, ast.Call):
                yield from self._function(self._called(node.func, code_path, function))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and _is_self(node.value):
                yield from self._set_or_computed(code_path, node.attr)

    def _called(self, node: ast.expr, code_path: CodePath, function: ast.AST | None = None) -> CodePath | None:
        """Where the definition of what is called stands; None outside the engine, or where only a type would tell."""
        if isinstance(node, ast.Subscript):  # kernel[grid](…), Base[T]
            return self._called(node.value, code_path, function)
        if isinstance(node, ast.Name):
            return self.bound(code_path.module, node.id, function)
        if isinstance(node, ast.Attribute):
            owner = code_path.owner
            if _is_self(node.value):
                return self._method(owner, node.attr)
            if isinstance(node.value, ast.Call) and getattr(node.value.func, "id", None) == "super":
                return next((found for base in self._bases(owner) if (found := self._method(base, node.attr))), None)
            holder = self._called(node.value, code_path, function)
            if holder and not holder.qualname:
                return self.bound(holder.module, node.attr)
            return self._method(holder, node.attr) if holder else None
        return None

    def bound(self, module: str, name: str, function: ast.AST | None = None, depth: int = 0) -> CodePath | None:
        """What `name` is in `module`, or in a function of it that imports for itself: a definition, or a module."""
        tree = self.tree(module)
        if tree is None or depth > 5:
            return None
        inner = [node for node in ast.walk(function) if isinstance(node, (ast.Import, ast.ImportFrom))] if function else []
        for statement in [*inner, *statements(tree)]:
            if name not in names(statement):
                continue
            if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
                return CodePath(module, name)
            if isinstance(statement, ast.ImportFrom):
                real = next(alias.name for alias in statement.names if (alias.asname or alias.name) == name)
                source = self._source(module, statement)
                if not source.startswith(self.engine + ".") and source != self.engine:
                    return None
                return self.bound(source, real, depth=depth + 1) or (
                    CodePath(f"{source}.{real}", "") if self.tree(f"{source}.{real}") else None
                )
            if isinstance(statement, ast.Import):
                real = next(alias.name for alias in statement.names if (alias.asname or alias.name.partition(".")[0]) == name)
                return CodePath(real, "") if real.startswith(self.engine + ".") and self.tree(real) else None
        return None

    def _source(self, module: str, statement: ast.ImportFrom) -> str:
        if not statement.level:
            return statement.module or ""
        package = module.rsplit(".", statement.level)[0]
        return f"{package}.{statement.module}" if statement.module else package

    def _bases(self, owner: CodePath) -> Iterator[CodePath]:
        tree = self.tree(owner.module)
        node = find(tree, owner.qualname) if tree and owner.qualname else None
        if isinstance(node, ast.ClassDef):
            yield from (found for base in node.bases if (found := self._called(base, owner)) and found != owner)

    def _method(self, owner: CodePath | None, name: str) -> CodePath | None:
        """The method where the class or its first base that has it defines it."""
        if owner is None or not owner.qualname:
            return None
        tree = self.tree(owner.module)
        if tree and isinstance(find(tree, f"{owner.qualname}.{name}"), (*_FUNCTIONS, ast.Module)):
            return CodePath(owner.module, f"{owner.qualname}.{name}")
        return next((found for base in self._bases(owner) if (found := self._method(base, name))), None)

    def _function(self, code_path: CodePath | None) -> Iterator[CodePath]:
        """The function itself; of a class, its `__init__` or, where it has none, the class."""
        tree = self.tree(code_path.module) if code_path else None
        if code_path is None or tree is None or not code_path.qualname:
            return
        if isinstance(find(tree, code_path.qualname), ast.ClassDef):
            yield self._method(code_path, "__init__") or code_path
        else:
            yield code_path

    def _set_or_computed(self, code_path: CodePath, attribute: str) -> Iterator[CodePath]:
        """The property of that name, or the methods of the class that set the attribute."""
        if found := self._method(code_path.owner, attribute):
            yield found
            return
        tree = self.tree(code_path.module)
        owner = find(tree, code_path.owner.qualname) if tree and code_path.owner.qualname else None
        for method in getattr(owner, "body", ()):
            if isinstance(method, _FUNCTIONS) and any(
                isinstance(node, ast.Attribute)
                and node.attr == attribute
                and not isinstance(node.ctx, ast.Load)
                and _is_self(node.value)
                for node in ast.walk(method)
            ):
                yield CodePath(code_path.module, f"{code_path.owner.qualname}.{method.name}")


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")
