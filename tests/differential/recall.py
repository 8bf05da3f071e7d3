"""`--recall`: how soon a run came across a bug that a fix corrects, or a fault that a correction once had, into recall.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import judge
from .protocol import Case
from .run import Record

ABOUT = (
    "How soon stock was seen wrong, or a fault that a correction once had, in runs of ten minutes at most. The machine had"
    " other work, too. 'drawn': all settings were drawn; 'settings of the fix': those that space.py gives for it, the rest"
    " was drawn; 'a case': chosen by hand. seconds: of both sides, until then or in all. Entries with 'refused' were written"
    " by --recall."
)
FAULTS = "faults of 0.1.0"


def entry(
    release: str, seed: int, how: str, every: Sequence[Record], fix: str, whole: Callable[[Case], str] | None = None
) -> dict[str, Any]:
    """fix: whose bug is looked for. whole(case): where a fault of its correction was put back, the verdict without the fault,
    which is seen in a case that fails with it alone."""
    every = sorted(every, key=lambda one: one.index)
    seen = next((count for count, one in enumerate(every, 1) if _seen(one, fix, whole)), None)
    taken = every[:seen]
    found = {
        "release": release, "how": how, "seed": seed, "configurations": len(taken),
        "refused": sum(one.verdict == judge.REFUSED for one in taken),
        "seconds": round(sum(sum(one.seconds) for one in taken)), "seen": seen is not None,
    }  # fmt: skip
    if not whole and not seen:
        found["corrected something in"] = sum(fix in one.corrections for one in every)
    return found


def _seen(one: Record, fix: str, whole: Callable[[Case], str] | None) -> bool:
    if whole:
        return one.verdict in judge.FAILING and one.case is not None and whole(one.case) not in judge.FAILING
    return one.verdict == judge.CORRECTED and fix in one.corrections


def add(file: Path, group: str, name: str, found: dict[str, Any]) -> None:
    """Into the file, in the place of an earlier entry for the same run."""
    whole = json.loads(file.read_text()) if file.exists() else {}
    whole["about"] = ABOUT
    entries = whole.setdefault(group, {}).setdefault(name, [])
    run = ("release", "how", "seed")
    entries[:] = [old for old in entries if [old.get(key) for key in run] != [found[key] for key in run]] + [found]
    file.write_text(json.dumps({"about": whole.pop("about"), **whole}, indent=1) + "\n")
