"""What is meant for others stands in `__all__`, nothing else does, and each name of it is there and explained."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import attnfix
import attnfix.kernels

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"attnfix": "attnfix", "attnfix.compat": "compat", "attnfix.patches": "patches", "attnfix.kernels": "kernels"}
EXPORTING = [
    ".".join((package, *path.relative_to(ROOT / folder).with_suffix("").parts)).removesuffix(".__init__")
    for package, folder in FOLDERS.items()
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "\n__all__ = " in path.read_text()
]


@pytest.mark.parametrize("package", [attnfix, attnfix.kernels], ids=lambda package: package.__name__)
def test_the_public_names_are_those_in_all_and_explained(package):
    offered = {name: getattr(package, name) for name in package.__all__}  # some are imported when asked for
    own = {name for name, value in vars(package).items() if getattr(value, "__module__", "").startswith("attnfix")}
    assert {name for name in own if not name.startswith("_")} == offered.keys() - {"__version__"}
    assert not [name for name, value in offered.items() if not value.__doc__]


@pytest.mark.parametrize("name", EXPORTING)
def test_every_name_in_all_exists(name):
    module = import_module(name)
    assert not [exported for exported in module.__all__ if not hasattr(module, exported)]
