"""The rows of all data modules: `<engine>/<fix>.py` beside the tests, one for each fix. Imports no torch."""

from __future__ import annotations

import importlib
from typing import Any

from attnfix.patches.catalogue import FIXES


def _rows(name: str) -> list[tuple[str, Any]]:
    """(id of the fix, row), in the catalogue's order, of the list that data modules call `name`. Not every one has it."""
    modules = [(fix.id, importlib.import_module(f"tests.fixes.{fix.package}")) for fix in FIXES]
    return [(fix, row) for fix, module in modules for row in getattr(module, name, ())]


#: fix, release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS: list[tuple[Any, ...]] = [(fix, *row) for fix, row in _rows("DEPLOYMENTS")]
#: The same for development code, judged as if the code had the bug
DEVELOPMENT: list[tuple[Any, ...]] = [(fix, *row) for fix, row in _rows("DEVELOPMENT")]
#: fix, {name of a fact: (values that hit, one that does not)}. A bug with two ways to it stands twice
WAYS: list[tuple[str, dict[str, tuple[tuple[Any, ...], Any]]]] = _rows("WAYS")
