"""The house plan, kept by a test: which way imports go, what stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from attnfix.bootstrap import import_hook, target_modules

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("attnfix", "compat", "patches", "kernels")
FILES = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
ALLOWED = {  # package -> what of ours it may import
    "attnfix": {"attnfix", "compat", "patches", "kernels"},
    "patches": {"patches", "compat", "kernels"},
    "compat": {"compat"},
    "kernels": {"kernels"},
}


def imports(path: Path, top_level_only: bool = False) -> set[str]:
    """Absolute names that a file imports; relative ones belong to its own package."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way_and_never_to_an_engine(path):
    package = path.relative_to(ROOT).parts[0]
    names = imports(path)
    for name in names:
        parts = name.split(".")
        if parts[0] == "attnfix" and len(parts) > 1:
            target = parts[1] if parts[1] in PACKAGES else "attnfix"
            assert target in ALLOWED[package], f"{package} must not import {name}"
    if path.name != "side.py":  # runs in a process of its own that exists to run the engine
        assert not names & {name for name in names if name.split(".")[0] in ("sglang", "vllm")}


def test_stand_ins_know_nothing_of_attnfix_or_the_switch():
    names = imports(ROOT / "patches" / "lab" / "emulators" / "__init__.py")
    assert {name.split(".")[0] for name in names} <= {"__future__", "math", "torch"}


@pytest.mark.parametrize(
    "module", ["attnfix.bootstrap.entry_points", "attnfix.patches.catalogue", "attnfix.compat.arming.activation", "attnfix.cli"]
)
def test_torch_is_imported_at_call_time_alone(module):
    code = f"import sys, {module}; print([m for m in ('torch', 'requests', 'pypi_simple') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_interpreter_start_imports_two_small_files():
    assert imports(ROOT / "attnfix" / "__init__.py", top_level_only=True) == set()
    assert imports(ROOT / "attnfix" / "bootstrap" / "import_hook.py", top_level_only=True) == {"sys"}
    assert imports(ROOT / "attnfix" / "bootstrap" / "target_modules.py") == set()
    assert set(import_hook.PACKAGES) == {name.partition(".")[0] for name in target_modules.MODULES}


def test_a_correction_that_is_not_needed_says_so():
    """To hand an untouched call on is as right, and costs twice as much at every call."""
    corrections = list((ROOT / "patches").rglob("*.py"))
    assert corrections and not [path for path in corrections if "return wrapped(*args, **kwargs)" in path.read_text()]
