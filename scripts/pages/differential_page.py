"""The tables of docs/differential.md: what the runs in docs/evidence/differential add up to, and what no run can reach."""

from __future__ import annotations

import importlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from packaging.version import Version

from tests.differential.launches import read
from tests.differential.space import version
from tests.fixes.rows import DIFFERENTIAL

EVIDENCE = Path(__file__).resolve().parents[2] / "docs/evidence/differential"
_PARTS = Path(__file__).resolve().parents[2] / "tests/differential"
_COUNTS = ("configurations", "steps", "harm", "missed", "find", "corrected", "refused", "band")


@cache
def _runs() -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads((EVIDENCE / "runs.json").read_text())
    return runs


def _by_release() -> dict[tuple[str, str], list[dict[str, Any]]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in sorted(_runs(), key=lambda run: (run["engine"], Version(run["release"]))):
        groups.setdefault((run["engine"], run["release"]), []).append(run)
    return groups


def table() -> str:
    """One row for each release, and the total."""
    header = (
        "release", "configurations", "steps", "harm", "missed", "finds", "corrected", "refused", "in the band", "pairs drawn",
    )  # fmt: skip
    rows = [(" ".join(release), *_sums(runs), _pairs(release[0], runs)) for release, runs in _by_release().items()]
    return _table(header, [*rows, ("**all**", *_sums(_runs()), "")])


def _sums(runs: list[dict[str, Any]]) -> list[str]:
    return [f"{sum(run[name] for run in runs):,}" for name in _COUNTS]


def _pairs(engine: str, runs: list[dict[str, Any]]) -> str:
    """Of the run that drew most of today's space; a run of an older space says nothing of it."""
    of_now = [run["pairs"] for run in runs if run["space"] == version(_space(engine).SPACE)]
    return "{:,} of {:,}".format(*max(of_now)) if of_now else "-"


def seen() -> str:
    """The fixes that acted in some run where stock was wrong, as a sentence for each engine."""
    lines = []
    for engine in _engines():
        fixes = sorted({fix.partition(".")[2] for run in _runs() if run["engine"] == engine for fix in run["fixes"]})
        lines.append(f"- {engine}, {len(fixes)}: {', '.join(f'`{fix}`' for fix in fixes)}.")
    return "\n".join(lines)


def candidates() -> str:
    """How many of the bugs that were listed beforehand were seen."""
    every = json.loads((EVIDENCE / "candidates.json").read_text())
    reached = [one for one in every if "release" in one]
    missed = ", ".join(f"`{one['bug']}`" for one in reached if not one["seen"])
    told = f"{sum(one['seen'] for one in reached)} of the {len(reached)} that the space reaches were seen; {missed} were not."
    return f"{told} The space does not reach the other {len(every) - len(reached)}."


def stand_ins() -> str:
    """How many recorded launches of each release gave the same on the real kernels."""
    header = ("release", "entry points", "launches", "agree", "differ", "refused by the kernel alone", "not run", "GPU")
    rows = []
    for path in sorted((_PARTS / "recorded").glob("*.jsonl.xz")):
        about, launches = read(path)
        name = f"{about['engine']}-{about['release']}"
        evidence = EVIDENCE / "stand-ins" / f"{name}.json"
        found = json.loads(evidence.read_text()) if evidence.exists() else {"entry_points": {}, "machine": {}}
        every = [found["entry_points"].get(entry, {}) for entry in {launch["entry"] for launch in launches}]
        ran = [one for one in every if one]
        agree, differ, refused, lost, undefined = (
            sum(one[outcome] for one in ran for outcome in outcomes)
            for outcomes in (
                ("agrees", "both refuse"), ("differs", "died", "hung"), ("refused",), ("absent", "not run"), ("undefined",),
            )
        )  # fmt: skip
        lost += len(launches) - sum(one["launches"] for one in ran)
        agrees = f"{agree}, and {undefined} without a defined number" if undefined else str(agree)
        counts = (len(every), len(launches), agrees, differ, refused, lost)
        rows.append((f"{about['engine']} {about['release']}", *map(str, counts), found["machine"].get("gpu", "-")))
    return _table(header, rows)


def axes() -> str:
    """The settings that are drawn, with the number of their values; a line for each engine."""
    lines = []
    for engine in _engines():
        settings = _space(engine).SPACE.axes
        lines.append(f"- {engine}: {', '.join(f'`{name}` {len(values)}' for name, values in settings.items())}.")
    return "\n".join(lines)


def not_reached() -> str:
    """Fixes that no settings of the space reach, with the reasons; a line for each engine."""
    lines = []
    for engine in _engines():
        reasons: dict[str, list[str]] = {}
        for fix, settings in DIFFERENTIAL.items():
            if fix.startswith(f"{engine}.") and isinstance(settings, str):
                reasons.setdefault(settings, []).append(f"`{fix.partition('.')[2]}`")
        told = "; ".join(f"{', '.join(fixes)} ({why})" for why, fixes in reasons.items())
        lines.append(f"- {engine}: {told}.")
    return "\n".join(lines)


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ("---",) * len(header), *rows))


def _engines() -> list[str]:
    return sorted(path.parent.name for path in _PARTS.glob("*/space.py"))


def _space(engine: str) -> Any:
    return importlib.import_module(f"tests.differential.{engine}.space")
