"""Every name of torch that runs in a serving process, looked up in the sources of other versions of torch.

A wheel of torch is most of a gigabyte: the few files that hold its names are read out of it by range requests, as `attnfix
prove` reads an engine's.
"""

from __future__ import annotations

import ast
import re
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: What a serving process may import: not proofs, emulators and benchmarks
FILES = [
    *(ROOT / "kernels").glob("[!b]*.py"),
    *(ROOT / "patches").glob("*/*/wrap.py"),
    *(ROOT / "patches").glob("shared/*.py"),
    *(ROOT / "patches").glob("*/shared/*.py"),
]
#: Used where it is there, else every launch takes the long way (kernels/launch_cache.py)
OPTIONAL = {"_C._dynamo.guards.TensorGuards"}
#: Stubs of what torch's C++ side brings into the package itself
COMPILED = ("torch/_C/__init__.pyi", "torch/_C/_VariableFunctions.pyi", "torch/__init__.py", "torch/functional.py")


def used() -> dict[str, list[str]]:
    """Dotted name under `torch` -> the files that use it."""
    found: dict[str, list[str]] = {}
    for path in FILES:
        for name in _names(ast.parse(path.read_text())):
            found.setdefault(name, []).append(str(path.relative_to(ROOT)))
    return found


def _names(tree: ast.Module) -> set[str]:
    chains = {text for node in ast.walk(tree) if isinstance(node, ast.Attribute) and (text := _chain(node))}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "torch":
            chains |= {f"{node.module}.{alias.name}" for alias in node.names}
        if isinstance(node, ast.Import):
            chains |= {alias.name for alias in node.names if alias.name.startswith("torch.")}
    longest = {chain for chain in chains if not any(other.startswith(f"{chain}.") for other in chains)}
    return {chain.removeprefix("torch.") for chain in longest}


def _chain(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        owner = _chain(node.value)
        return owner and f"{owner}.{node.attr}"
    return "torch" if isinstance(node, ast.Name) and node.id == "torch" else None


def missing_here(names: dict[str, list[str]]) -> list[str]:
    """Names that the installed torch does not have."""
    import importlib

    import torch

    missing = []
    for name in names:
        value: object = torch
        for at, part in enumerate(name.split(".")):
            if not hasattr(value, part):
                try:
                    importlib.import_module(".".join(["torch", *name.split(".")[: at + 1]]))
                except ImportError:
                    missing.append(name)
                    break
            value = getattr(value, part)
    return missing


def missing_in(wheel: zipfile.ZipFile, names: dict[str, list[str]]) -> list[str]:
    """Names that the sources in a wheel of torch do not hold."""
    files = set(wheel.namelist())
    texts: dict[str, str] = {}

    def holds(path: str, word: str) -> bool:
        if path not in texts:
            texts[path] = wheel.read(path).decode() if path in files else ""
        return re.search(rf"\b{re.escape(word)}\b", texts[path]) is not None

    return [name for name in names if not _found(name, files, holds)]


def _found(name: str, files: set[str], holds: object) -> bool:
    """The longest part of the name that is a module, and the word after it in that module's file."""
    parts = name.split(".")
    for count in range(len(parts), -1, -1):
        stem = "/".join(["torch", *parts[:count]])
        places = [
            path for path in (f"{stem}.py", f"{stem}/__init__.py", f"{stem}.pyi", f"{stem}/__init__.pyi") if path in files
        ]
        if not places:
            continue
        if count == len(parts):
            return True
        if count == 0:
            places = [path for path in COMPILED if path in files]
        return any(holds(path, parts[count]) for path in places)  # type: ignore[operator]
    return False
