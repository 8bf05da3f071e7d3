"""The rows of all data modules: `<engine>/<fix>.py` beside the tests, one for each fix. Imports no torch."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from attnfix.patches.catalogue import FIXES


def _modules() -> dict[str, ModuleType]:
    """Id of a fix -> its data module, in the catalogue's order. A fix without one has no rows, and tests of its rows fail."""
    names = {fix.id: f"tests.fixes.{fix.package}" for fix in FIXES}
    return {fix: importlib.import_module(name) for fix, name in names.items() if find_spec(name)}


def _rows(name: str) -> list[tuple[str, Any]]:
    """(id of the fix, row) of the list that data modules call `name`. Not every module has it."""
    return [(fix, row) for fix, module in _modules().items() for row in getattr(module, name, ())]


#: fix, release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS: list[tuple[Any, ...]] = [(fix, *row) for fix, row in _rows("DEPLOYMENTS")]
#: The same for development code, judged as if the code had the bug
DEVELOPMENT: list[tuple[Any, ...]] = [(fix, *row) for fix, row in _rows("DEVELOPMENT")]
#: fix, {name of a fact: (values that hit, one that does not)}. A bug with two ways to it stands twice
WAYS: list[tuple[str, dict[str, tuple[tuple[Any, ...], Any]]]] = _rows("WAYS")
#: "engine/fix:place" of a function that the engine gets without a guard -> why it needs none
UNGUARDED: dict[str, str] = {
    f"{fix.replace('.', '/').replace('-', '_')}:{place}": why
    for fix, module in _modules().items()
    for place, why in getattr(module, "UNGUARDED", {}).items()
}
#: fix -> settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL: dict[str, dict[str, Any] | str] = {
    fix: module.DIFFERENTIAL for fix, module in _modules().items() if hasattr(module, "DIFFERENTIAL")
}
#: fix that runs the engine's function as it is -> why functions that are called there need no witness
RUN_AS_IT_IS: dict[str, str] = {
    fix: module.RUN_AS_IT_IS for fix, module in _modules().items() if hasattr(module, "RUN_AS_IT_IS")
}
