"""What engines with real kernels showed of each release and of each fix, from docs/evidence/e2e-*.json."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from packaging.version import Version

from attnfix.cli.listing import span
from scripts.pages.gpu_runs import short_gpu
from scripts.pages.served_table import EVIDENCE, SERVED, runs

KINDS = ("mla", "dense", "windows", "hybrid")
#: States of a fix that is at work
_STANDS = ("installed", "effective")


def table() -> str:
    """One row for each release of which a case of scripts/serve/served.py is on record, the newest first."""
    header = ("release", "GPU", *KINDS, "fixes that stand", "corrected", "checks that failed")
    found = [run for run in _runs() if any(name.startswith(SERVED) for name in run["cases"])]
    found.sort(key=lambda run: (run["engine"], Version(run["release"])), reverse=True)
    rows = [header, ("---",) * len(header), *map(_row, found)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def corrected(fix: str) -> str:
    """Where a served engine's own kernels ran behind a correction of this fix: releases and GPUs. Empty: nowhere."""
    seen = [run for run, fixes in zip(_runs(), _corrections()) if fix in fixes]
    releases = sorted({run["release"] for run in seen}, key=Version)
    return f"{span(releases)} ({', '.join(sorted({short_gpu(run['gpu']) for run in seen}))})" if seen else ""


def _runs() -> list[dict[str, Any]]:
    return runs(EVIDENCE)


@cache
def _corrections() -> list[set[str]]:
    """Of each run, the fixes that corrected in some process of a case with real kernels alone, unless it tells that stock
    was right: then it has not `shown` that something was mended."""
    real = [[case for case in run["cases"].values() if "emulated" not in case and case.get("shown", True)] for run in _runs()]
    return [{fix for case in cases for fix, row in _fixes(case) if row.get("corrections")} for cases in real]


def _fixes(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of `attnfix status` that lie anywhere in a case."""
    if isinstance(value, list):
        for entry in value:
            yield from _fixes(entry)
    elif isinstance(value, dict):
        for name, entry in value.items():
            if name == "fixes" and isinstance(entry, dict):
                yield from entry.items()
            else:
                yield from _fixes(entry)


def _row(run: dict[str, Any]) -> tuple[str, ...]:
    cases = {name.removeprefix(SERVED): case for name, case in run["cases"].items() if name.startswith(SERVED)}
    rows = [pair for case in cases.values() for pair in _fixes(case)]
    stands = {fix for fix, row in rows if row["state"] in _STANDS}
    fired = sorted(f"`{fix.partition('.')[2]}`" for fix, row in rows if row["corrections"])
    failed: dict[str, list[str]] = {}  # what several models fail alike stands once
    for kind, sentence in (one.split(": ", 1) for case in cases.values() for one in case["failures"]):
        failed.setdefault(sentence, []).append(kind)
    return (
        f"[{run['engine']} {run['release']}](evidence/{run['file']})",
        short_gpu(run["gpu"]),
        *(_moved(cases.get(kind)) for kind in KINDS),
        str(len(stands)),
        ", ".join(dict.fromkeys(fired)) or "-",
        "; ".join(f"{', '.join(kinds)}: {sentence}" for sentence, kinds in failed.items()) or "none",
    )


def _moved(case: dict[str, Any] | None) -> str:
    """How far a cached half or company moves an answer, at most: stock → patched."""
    if case is None:
        return "not asked"
    sides = case["sides"]
    told = [_of(sides[name]) for name in ("stock", "patched") if name in sides]
    if set(told) == {"ended"}:
        said = sides["patched"]["said"] or sides["patched"]["ended"]
        return f"not served: {re.split(r'[.:] ', said.removeprefix('start: '))[0]}"
    return " → ".join(told)


def _of(side: dict[str, Any]) -> str:
    if "ended" in side:
        return "ended"
    moved = [seen["difference"] for what, seen in side["compared"].items() if what.startswith("cold and ")]
    return "not finite" if None in moved else f"{max(moved):.2g}"
