"""The tables of docs/kernels.md, from the last report of scripts/bench/kernels.py, which is in the archive of raw records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Any

from scripts.evidence import archive

#: The report's name in the archive
REPORT = "kernels-h200/kernels-h200.json"


@cache
def report() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(archive.members()[REPORT])
    return found


def times() -> str:
    """Every work: bytes, our time, its rate and share of the copy, and every peer's time."""
    return "\n".join(_times())


def _times() -> Iterator[str]:
    yield "| work | MB | attnfix µs | TB/s | of the copy | peers µs (times ours) |"
    yield "|---|---|---|---|---|---|"
    for work, rows in groupby(report()["rows"], lambda row: row["work"]):
        by = list(rows)
        ours = [row for row in by if row["ours"]]
        if by[0]["family"] == "copy":
            continue
        peers = [f"{row['by']} {row['us']:.1f} ({row['us'] / ours[0]['us']:.2f})" for row in by if row not in ours[:1]]
        first = ours[0]
        times = f"{first['us']:.1f} ({first['single_us']:.1f})"
        cells = (work, f"{first['bytes'] / 1e6:.1f}", times, f"{first['gb_s'] / 1e3:.2f}")
        yield f"| {' | '.join(cells)} | {first['share_of_copy']:.0%} | {', '.join(peers)} |"


def goals() -> str:
    """What was wanted, what was got; where a kernel at the rate of the copy would not get there, what it would."""
    rows = ["| goal | wanted | got | at the rate of a copy |", "|---|---|---|---|"]
    for goal in report()["goals"]:
        bound = goal.get("at_copy_rate")
        got = goal["shown"] if goal["holds"] else f"**{goal['shown']}**"
        shown = f"{bound:.2f}x" if bound and not goal["holds"] else ""
        need = goal["need"].replace(">=", "≥").replace("<=", "≤")
        rows.append(f"| {goal['goal']}: {goal['what']} | {need} | {got} | {shown} |")
    return "\n".join(rows)
