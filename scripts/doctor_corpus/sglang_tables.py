"""The doctor's table of sglang's models: `python -m scripts.doctor_corpus.sglang_tables` reads it in each release's source.

compat/doctor/sglang_models.json is {architecture: rows}, a row [first release, window, cap, backend, pool, source line]. A row
holds until the next; one of null says that the release has no such model. Nothing is imported: syntax trees are read.

window   none: its class hands no sliding window to the runner; short: always one without the token itself; else null
cap      none: neither its module nor the models that it imports cap scores; else null
backend  common: no branch for this architecture touches the attention backend; else null
pool     whether the release lists it among the models with a KV pool for window layers
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from packaging.version import Version

from attnfix.compat.gate import index
from attnfix.compat.releases import fetch

FILE = Path(__file__).resolve().parents[2] / "compat" / "doctor" / "sglang_models.json"
_INDEX = FILE.parents[2] / "patches" / "sglang" / "index.json"
#: Earlier releases choose backends by a list of architectures, and are not in the table
FIRST = Version("0.5.8")
_METHOD = "get_attention_sliding_window_size"
_MODELS = "sglang.srt.models."
_ARCHITECTURE = re.compile(r"For[A-Z]\w+$")
_BACKENDS = frozenset({"attention_backend", "prefill_attention_backend", "decode_attention_backend"})


class Module(NamedTuple):
    """What the table asks of a module. `imported`: name -> (module behind sglang.srt.models, its name there)."""

    classes: dict[str, ast.ClassDef]
    functions: dict[str, ast.FunctionDef]
    imported: dict[str, tuple[str, str]]
    entries: list[str]
    caps: bool


_read: dict[str, Module] = {}


def _module(file: Path) -> Module:
    text = file.read_bytes()
    key = sha256(text).hexdigest()
    if key not in _read:
        _read[key] = _parsed(ast.parse(text))
    return _read[key]


def _parsed(tree: ast.Module) -> Module:
    found = Module({}, {}, {}, _entries(tree), _caps(tree))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found.classes[node.name] = node
        elif isinstance(node, ast.FunctionDef):
            found.functions[node.name] = node
    for part in ast.walk(tree):
        if isinstance(part, ast.ImportFrom) and (part.module or "").startswith(_MODELS):
            for name in part.names:
                found.imported[name.asname or name.name] = (str(part.module).removeprefix(_MODELS), name.name)
    return found


def _entries(tree: ast.Module) -> list[str]:
    assigned = (node for node in tree.body if isinstance(node, ast.Assign))
    values = (node.value for node in assigned if getattr(node.targets[0], "id", "") == "EntryClass")
    return [node.id for value in values for node in ast.walk(value) if isinstance(node, ast.Name)]


def _caps(tree: ast.Module) -> bool:
    """Whether a layer may be given a cap of scores: any but a constant of none."""
    given = [
        word.value for node in ast.walk(tree) if isinstance(node, ast.Call) for word in node.keywords if word.arg == "logit_cap"
    ]
    return any(not (isinstance(value, ast.Constant) and not value.value) for value in given)


class Release:
    """`site` is the folder of sglang.srt."""

    def __init__(self, site: Path):
        models = site / "models"
        self.modules = {
            ".".join(file.relative_to(models).with_suffix("").parts): _module(file) for file in sorted(models.rglob("*.py"))
        }
        self.own_backend = frozenset(_with_own_backend(site))
        self.pools = frozenset(_with_pools(site))

    def rows(self) -> Iterator[tuple[str, list[Any]]]:
        for name, module in self.modules.items():
            for architecture in module.entries:
                if architecture in module.classes:
                    yield architecture, self._row(name, architecture)

    def _row(self, module: str, architecture: str) -> list[Any]:
        of_class = self.modules[module].classes[architecture]
        method = self._method(module, of_class)
        own = any(word[:-1] in architecture if word.endswith("*") else word == architecture for word in self.own_backend)
        where, node = method or (module, of_class)
        return [
            "none" if method is None else "short" if self._short(*method) else None,
            None if any(self.modules[name].caps for name in self._behind(module)) else "none",
            None if own else "common",
            architecture in self.pools,
            f"models/{where.replace('.', '/')}.py:{node.lineno}",
        ]

    def _behind(self, module: str) -> set[str]:
        """The module and all models' modules that it imports, or those import."""
        found, new = set(), [module]
        while new:
            if (name := new.pop()) in self.modules and name not in found:
                found.add(name)
                new += [where for where, _ in self.modules[name].imported.values()]
        return found

    def _method(self, module: str, of_class: ast.ClassDef) -> tuple[str, ast.FunctionDef] | None:
        for node in of_class.body:
            if isinstance(node, ast.FunctionDef) and node.name == _METHOD:
                return module, node
        for base in of_class.bases:
            where = self._where(module, getattr(base, "id", ""))
            if where and (found := self._method(*where)):
                return found
        return None

    def _where(self, module: str, name: str) -> tuple[str, ast.ClassDef] | None:
        if name in self.modules[module].classes:
            return module, self.modules[module].classes[name]
        where, there = self.modules[module].imported.get(name, ("", ""))
        return self._where(where, there) if where in self.modules else None

    def _short(self, module: str, function: ast.FunctionDef) -> bool:
        """Whether it always returns the configured window less one, by itself or by what it calls."""
        nodes = list(ast.walk(function))
        if any(isinstance(node, (ast.If, ast.IfExp, ast.BoolOp)) for node in nodes):
            return False
        if any(
            isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and getattr(node.right, "value", 0) == 1
            for node in nodes
        ):
            return True
        calls = [node.func for node in nodes if isinstance(node, ast.Call)]
        if len(calls) != 1:
            return False
        if isinstance(calls[0], ast.Name):
            where, name = self.modules[module].imported.get(calls[0].id, (module, calls[0].id))
            called = self.modules[where].functions.get(name) if where in self.modules else None
            return called is not None and self._short(where, called)
        parts = [
            (where, self._where(where, name)) for where, name in self.modules[module].imported.values() if where in self.modules
        ]
        methods = {self._method(*at)[1]: at[0] for _, at in parts if at and self._method(*at)}  # type: ignore[index]
        return bool(methods) and all(self._short(where, method) for method, where in methods.items())


def _with_own_backend(site: Path) -> Iterator[str]:
    """Architectures whose branch or override touches the attention backend; `Llama4*` where a part of the name decides."""
    for file in (
        site / "server_args.py",
        *sorted((site / "arg_groups").rglob("*.py")),
        site / "model_executor" / "model_runner.py",
    ):
        if file.is_file():
            yield from _own_backends(sha256(file.read_bytes()).hexdigest(), file)


_own: dict[str, list[str]] = {}


def _own_backends(key: str, file: Path) -> list[str]:
    if key not in _own:
        tree = ast.parse(file.read_bytes())
        lists = {
            target.id: list(_names(node.value, {}))
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        found: list[str] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and any(_touches(part, lists) for part in node.body):
                found += _names(node.test, lists)
            elif isinstance(node, ast.FunctionDef) and any(_touches(part, lists) for part in node.body):
                found += [name for decorator in node.decorator_list for name in _names(decorator, lists)]
        _own[key] = found
    return _own[key]


def _names(node: ast.AST, lists: dict[str, list[str]]) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield from lists.get(part.id, ())
        elif isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value[:1].isupper():
            yield part.value
        elif isinstance(part, ast.Compare) and isinstance(part.left, ast.Constant):
            yield f"{part.left.value!s}*"


def _touches(node: ast.AST, lists: dict[str, list[str]]) -> bool:
    """Whether a statement sets an attention backend: an attribute, a key, or an argument; a branch within it for certain
    architectures is theirs alone."""
    if isinstance(node, ast.If) and any(_ARCHITECTURE.search(name) for name in _names(node.test, lists)):
        return any(_touches(part, lists) for part in node.orelse)
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in _BACKENDS:
        return True
    if isinstance(node, ast.keyword) and (node.arg or "").endswith("attention_backend"):
        return True
    if isinstance(node, ast.Dict) and any(getattr(key, "value", None) in _BACKENDS for key in node.keys):
        return True
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and getattr(node.slice, "value", None) in _BACKENDS:
        return True
    return any(_touches(part, lists) for part in ast.iter_child_nodes(node))


@cache
def _pools(text: bytes) -> list[str]:
    tree = ast.parse(text)
    lists = {
        target.id: list(_names(node.value, {}))
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    of = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "is_hybrid_swa_model"]
    return [name for node in of for name in _names(node, lists)]


def _with_pools(site: Path) -> list[str]:
    return _pools((site / "configs" / "model_config.py").read_bytes())


def table(releases: list[str]) -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = {}
    for release in releases:
        rows = dict(Release(fetch.fetch("sglang", release) / "sglang" / "srt").rows())
        for architecture in sorted({*found, *rows}):
            row = rows.get(architecture, [None] * 5)
            before = found.setdefault(architecture, [])
            if (before[-1][1:5] if before else [None] * 4) != row[:4]:
                before.append([release, *row])
        print(release, len(rows), flush=True)
    return dict(sorted(found.items()))


def main() -> None:
    releases = [release for release in index.read(_INDEX).releases if Version(release) >= FIRST]
    rows = (f"{json.dumps(name)}: {json.dumps(found)}" for name, found in table(releases).items())
    FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
