"""The fixes of an engine as its index knows them: a process that serves imports the folders of those alone that apply to it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from attnfix.compat.fix import Fix, Judgeable
from attnfix.compat.gate import index


def of(engine: str) -> Sequence[Judgeable]:
    """In the order of the catalogue."""

    def every() -> Sequence[Fix]:
        fixes: Sequence[Fix] = import_module(f"attnfix.patches.{engine}.catalogue").FIXES
        return fixes

    return index.entries(Path(__file__).parent / engine / "index.json", _declared, every)


def _declared(package: str) -> Fix:
    fix: Fix = import_module(f"attnfix.patches.{package}.fix").FIX
    return fix
