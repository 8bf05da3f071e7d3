"""Every fix and every known bug of both engines, for tools. Each engine has a catalogue of its own: a process that serves
imports no other, and no known bug."""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from attnfix.patches.sglang.catalogue import FIXES as OF_SGLANG
from attnfix.patches.vllm.catalogue import FIXES as OF_VLLM

if TYPE_CHECKING:
    from attnfix.compat.doctor.deployment import Makers
    from attnfix.compat.known_bug import KnownBug

FIXES = OF_SGLANG + OF_VLLM
BY_ID = {fix.id: fix for fix in FIXES}
#: What `ways_around` reads; `scripts/ledger/ways_around.py` writes it
WAYS = Path(__file__).with_name("ways_around.json")


@cache
def known_bugs(engine: str) -> tuple[KnownBug, ...]:
    """The bugs of an engine that no fix corrects, by their ids."""
    package = import_module(f"attnfix.patches.{engine}.known")
    return tuple(import_module(f"{package.__name__}.{module.name}").BUG for module in iter_modules(package.__path__))


def known_by_id() -> dict[str, KnownBug]:
    """The known bugs of both engines."""
    return {bug.id: bug for engine in ("sglang", "vllm") for bug in known_bugs(engine)}


def facts_of_fixes(engine: str) -> Makers:
    """What `facts.py` in a fix's folder tells `doctor`, of all fixes of an engine."""
    modules = [f"attnfix.patches.{fix.package}.facts" for fix in FIXES if fix.engine == engine]
    return {name: maker for module in modules if find_spec(module) for name, maker in import_module(module).FACTS.items()}


def ways_around() -> dict[str, dict[str, list[str]]]:
    """{fix: {way around its bug, as `Fix.avoid` writes it: releases in which stock was right with it, on a CPU}}"""
    found: dict[str, dict[str, list[str]]] = json.loads(WAYS.read_text())
    return found
