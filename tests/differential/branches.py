"""`--branches`: which branches of the engine's backends and builders, and of the corrections, a run entered.

Coverage.py measures inside each fork of the patched side, where only these files are traced; the arcs come back with the
answer, and add up in a file beside the results. Counted are the functions of classes of which a case entered any, functions of
modules that a case entered, and the corrections of fixes that stood: what an engine has for other GPUs is no part of it.
"""

from __future__ import annotations

import ast
import json
import math
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
#: patterns below the engine's package
_ENGINE = {
    "vllm": ("v1/attention/backends/*.py", "v1/attention/backends/mla/*.py", "v1/worker/gpu/attn_utils.py"),
    "sglang": ("srt/layers/attention/*.py", "srt/layers/attention/*/*.py"),
}
#: below `patches/<engine>`
_FIXES = ("*/wrap.py", "shared/*.py")

#: file, as `files` names it -> arcs from a line to a line, as coverage.py numbers them
Arcs = dict[str, list[list[int]]]


def files(engine: str, site: str | Path) -> dict[str, Path]:
    """name in reports -> file."""
    roots = [(engine, Path(site) / engine, _ENGINE[engine]), (f"patches/{engine}", ROOT / "patches" / engine, _FIXES)]
    found = ((owner, root, path) for owner, root, patterns in roots for one in patterns for path in sorted(root.glob(one)))
    return {f"{owner}/{path.relative_to(root)}": path for owner, root, path in found}


class Measured:
    """In a fork, around a case. Used as a context; `arcs` afterwards."""

    def __init__(self, engine: str, site: str):
        import coverage

        self._files = files(engine, site)
        include = [str(path) for path in self._files.values()]
        self._coverage = coverage.Coverage(data_file=None, branch=True, include=include, config_file=False)
        self.arcs: Arcs = {}

    def __enter__(self) -> Measured:
        self._coverage.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        self.arcs = {name: sorted(map(list, found)) for name, path in self._files.items() if (found := data.arcs(str(path)))}


class Total:
    """What runs of a release entered so far; `add` and `save` it."""

    def __init__(self, file: Path):
        self.file, self.cases, self._saved = file, 0, -math.inf
        self._arcs: dict[str, set[tuple[int, int]]] = {}
        self._armed: set[str] = set()
        if file.exists():
            found = json.loads(file.read_text())
            self.add(found["arcs"], found["armed"], found["cases"])

    def add(self, arcs: Arcs, armed: Iterable[str], cases: int = 1) -> None:
        """armed: ids of fixes."""
        self.cases += cases
        self._armed.update(armed)
        for name, found in arcs.items():
            self._arcs.setdefault(name, set()).update((int(a), int(b)) for a, b in found)

    def save(self, seconds: float = 0.0) -> None:
        """Unless it was done within so many seconds."""
        if time.monotonic() - self._saved < seconds:
            return
        self._saved = time.monotonic()
        whole = self.file.with_name(self.file.name + ".part")
        arcs = {name: sorted(found) for name, found in sorted(self._arcs.items())}
        whole.write_text(json.dumps({"cases": self.cases, "armed": sorted(self._armed), "arcs": arcs}))
        whole.replace(self.file)

    def summary(self, engine: str, site: str | Path) -> dict[str, Any]:
        """How many cases, and of each file: branches, how many of them were entered; the same of its classes and functions; the
        functions that no case entered."""
        import coverage

        found: dict[str, Any] = {}
        for name, path in files(engine, site).items():
            measured = coverage.Coverage(data_file=None, branch=True, config_file=False)
            arcs = self._arcs.get(name, set())
            measured.get_data().add_arcs({str(path): arcs})
            if arcs or self._corrects(path):
                stats, lines = measured.branch_stats(str(path)), {abs(line) for arc in arcs for line in arc}
                one = _of_a_file(path, stats, lines, self._corrects(path))
                if one["branches"] or one["never"]:
                    found[name] = one
        return {"cases": self.cases, "files": found}

    def _corrects(self, path: Path) -> bool:
        """Whether it is of a fix that the release needs, and that stood: then it counts though no case entered it."""
        folders = {fix.partition(".")[2].replace("-", "_") for fix in self._armed}
        return path.name == "wrap.py" and path.parent.name in folders


def file_of(results: Path) -> Path:
    return results.with_suffix(".branches.json")


class _Function(NamedTuple):
    owner: str  # its class, or itself
    name: str
    body: range


def _of_a_file(path: Path, stats: dict[int, tuple[int, int]], lines: set[int], whole: bool) -> dict[str, Any]:
    every = list(_functions(ast.parse(path.read_text())))
    entered = {one for one in every if any(line in lines for line in one.body)}
    owners = {one.owner for one in (every if whole else entered)}
    of: dict[str, list[int]] = {}
    for one in every:
        if one.owner in owners:
            taken = [stats[line] for line in one.body if line in stats]
            counts = of.setdefault(one.owner, [0, 0])
            counts[0] += sum(done for _, done in taken)
            counts[1] += sum(exits for exits, _ in taken)
    return {
        "entered": sum(done for done, _ in of.values()), "branches": sum(exits for _, exits in of.values()), "of": of,
        "never": sorted(one.name for one in every if one.owner in owners and one not in entered),
    }  # fmt: skip


def _functions(tree: Any, owner: str = "") -> Iterator[_Function]:
    """Those of classes and of the module; what is defined inside one belongs to it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{owner}.{node.name}".strip("."))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not _abstract(node):
            name = f"{owner}.{node.name}".strip(".")
            yield _Function(owner or name, name, range(_begin(node), (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, (ast.If, ast.Try)):
            yield from _functions(node, owner)


def _begin(node: Any) -> int:
    """The first line that runs when it is called: behind a docstring."""
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1:
        first = node.body[1]
    return int(first.lineno)


def _abstract(node: Any) -> bool:
    """Nothing but a docstring, `...`, `pass` or a refusal."""
    return all(
        isinstance(one, (ast.Pass, ast.Raise)) or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        for one in node.body
    )
