"""docs/support.md and the site's support.html: fixes by releases, from the last run of scripts.ledger.matrix alone."""

from __future__ import annotations

import json
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from packaging.version import Version

from attnfix.cli import known
from attnfix.cli.listing import span
from attnfix.compat.engines import ENGINES
from attnfix.compat.fix import Fix
from attnfix.patches.catalogue import FIXES, known_bugs
from scripts.pages import gpu_runs, who_is_hit

ROOT = Path(__file__).resolve().parents[2]
MATRIX = ROOT / "docs" / "evidence" / "matrix" / "matrix.json"
LEGEND = (
    ("proven", "proven: wrong as published, right with the fix"),
    ("optional", "the same, for a fix that is off by default"),
    ("fixed", "fixed upstream: left alone"),
    ("healthy", "not affected: left alone"),
    ("absent", "has no such code path: left alone"),
)


def page(name: str) -> str:
    """The text of `support.md` or `support.html`."""
    shown = [_shown(cell) for cell in cells()]
    published = {(cell["fix"], cell["release"]): cell for cell in shown if not cell["edit"]}
    return rendered(
        name,
        attnfix=_run()["attnfix"],
        machine=_run()["machine"],
        totals=totals(),
        legend=LEGEND,
        families=who_is_hit.FAMILIES,
        gpus=who_is_hit.GPUS,
        engines=[_engine(engine, published, shown) for engine in dict.fromkeys(fix.engine for fix in FIXES)],
        known={engine: [known.describe(bug) for bug in known_bugs(engine)] for engine in ENGINES},
        span=span,
        edited=[cell for cell in shown if cell["edit"]],
        releases=sorted({cell["release"] for cell in shown}, key=Version),
    )


def rendered(name: str, **facts: Any) -> str:
    """The template of that name, filled."""
    templates = FileSystemLoader(Path(__file__).with_name("templates"))
    environment = Environment(loader=templates, autoescape=name.endswith("html"), keep_trailing_newline=True)  # nosec B701
    return environment.get_template(f"{name}.j2").render(**facts)


def cells() -> list[dict[str, Any]]:
    """The cells of the last run, as scripts/ledger/matrix.py wrote them."""
    cells: list[dict[str, Any]] = _run()["cells"]
    return cells


@cache
def _run() -> dict[str, Any]:
    run: dict[str, Any] = json.loads(MATRIX.read_text())
    return run


def totals() -> str:
    """What was run, for README and both pages."""
    published = [cell for cell in cells() if not cell["edit"]]
    proven = sum(cell["verdict"] == "proven" for cell in published)
    releases = {(cell["fix"].partition(".")[0], cell["release"]) for cell in published}
    told = (
        f"{len(FIXES)} fixes were tried on {len(releases)} published releases, in {len(published)} runs. In {proven} of them "
        "the release as published shows the bug, and the fix corrects it. In the other "
        f"{len(published) - proven} the release does not have the bug, and attnfix leaves it untouched."
    )
    return textwrap.fill(told, 128)


def _engine(engine: str, published: dict[tuple[str, str], dict[str, Any]], shown: list[dict[str, Any]]) -> dict[str, Any]:
    fixes = [fix for fix in FIXES if fix.engine == engine]
    ours = {fix.id for fix in fixes}
    releases = sorted({release for fix, release in published if fix in ours}, key=Version)
    rows = [
        {
            "fix": fix,
            "name": fix.id.partition(".")[2],
            "evidence": _evidence(fix, [cell for cell in shown if cell["fix"] == fix.id and cell["verdict"] == "proven"]),
            **_affected(row := [published.get((fix.id, release), _NOT_RUN) for release in releases], releases),
            "cells": row,
            "families": who_is_hit.families(fix),
            "gpus": who_is_hit.gpus(fix),
        }
        for fix in fixes
    ]
    return {"name": engine, "releases": releases, "rows": rows}


def _affected(row: list[dict[str, Any]], releases: list[str]) -> dict[str, dict[str, Any]]:
    """Since which release a fix is needed and in which no more, each as text and as what it is sorted by: its place among the
    releases, behind them all where there is none."""
    proven = [at for at, cell in enumerate(row) if cell["verdict"] == "proven"]
    if not proven:
        never = {"text": "-", "rank": len(releases) + 1}
        return {"since": never, "fixed_in": never}
    after = proven[-1] + 1
    healed = releases[after] if after < len(releases) else "not yet"
    return {"since": {"text": releases[proven[0]], "rank": proven[0]}, "fixed_in": {"text": healed, "rank": after}}


def _shown(cell: dict[str, Any]) -> dict[str, Any]:
    """A cell with what the templates show of it."""
    fix = next(fix for fix in FIXES if fix.id == cell["fix"])
    proven = cell["verdict"] == "proven"
    figures = f"{number(cell['stock_error'])} → {number(cell['fixed_error'])}" if proven else "left alone"
    kind = _kind(fix, cell)
    shown = {"figures": figures, "tip": _tip(fix, cell, figures), "short": _short(cell, figures)}
    return {**cell, **shown, "kind": kind, "rank": _RANKS[kind]}


#: A release that needs a fix comes before one that does not
_RANKS = {kind: rank for rank, (kind, _) in enumerate(LEGEND)}
_NOT_RUN = {"kind": "absent", "rank": _RANKS["absent"], "tip": "not examined", "short": "", "verdict": "not examined"}


def _kind(fix: Fix, cell: dict[str, Any]) -> str:
    if cell["verdict"] == "proven":
        return "proven" if fix.default else "optional"
    if cell["verdict"] == "fixed upstream":
        return "fixed"
    return "absent" if cell["observed"] == "absent" else "healthy"


def _short(cell: dict[str, Any], figures: str) -> str:
    verdict: str = cell["verdict"]
    return {"proven": figures, "fixed upstream": "fixed", "not affected": "·"}.get(verdict, verdict)


def _tip(fix: Fix, cell: dict[str, Any], figures: str) -> str:
    lines = [f"{fix.id} on {fix.engine} {cell['release']}"]
    if cell["verdict"] == "proven":
        lines += [f"{cell['measure'] or 'error'}: {figures}", f"proven, {cell['evidence']}, {cell['corrections']} corrections"]
    else:
        ran = f"stock error {number(cell['stock_error'])} ({cell['evidence']})"
        lines += [f"{cell['verdict']}, functions untouched", ran if cell["observed"] == "green" else cell["reason"]]
    return "\n".join([*lines, f"code {cell['code']}"])


def _evidence(fix: Fix, proven: list[dict[str, Any]]) -> str:
    ran = ", ".join(sorted({cell["evidence"] for cell in proven}))
    told = "; counts ".join(dict.fromkeys([ran, *(cell["measure"] for cell in proven if cell["measure"])])) or "-"
    served = gpu_runs.corrected(fix.id)
    return f"{told}; served {served}" if served else told


def number(error: float | None) -> str:
    """An error as tables show it; None where something was not finite."""
    return "not finite" if error is None else f"{error:.2g}"
