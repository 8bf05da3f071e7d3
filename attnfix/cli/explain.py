"""`attnfix explain FIX`: all there is to know of one fix, for whoever has to decide about it. Offline, and no torch."""

from __future__ import annotations

import argparse
from typing import Any

from attnfix.compat.arming import switches
from attnfix.compat.fix import Fix
from attnfix.patches.catalogue import BY_ID

from . import completion
from .listing import avoided, describe, named, span
from .output import console, documentation, print_json

NAME = "explain"
BRIEF = "one fix: symptom, cause, correction, cost, switch"
HELP = "One fix: symptom, cause, who is affected, correction, cost, links, switch, how to try it, when to remove it."
EXAMPLE = "attnfix explain sglang.zero-kv-rows"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    fix = parser.add_argument("fix", metavar="FIX", help="as in sglang.zero-kv-rows, or zero-kv-rows")
    completion.offer(fix, lambda: BY_ID)


def run(options: argparse.Namespace) -> int:
    fix = named(options.fix)
    if options.json:
        print_json(describe(fix))
    else:
        _print(fix, describe(fix))
    return 0


def _print(fix: Fix, row: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    affected = f"{fix.engine} {span(row['affected'])}"
    if not row["affected"]:
        affected = "no published release; development code alone"
    on, off = f"{fix.switch}=1 requires it", f"{fix.switch}=0 turns it off"
    lines: tuple[tuple[str, str], ...] = (
        ("harm", fix.harm),
        ("symptom", fix.symptom),
        ("cause", fix.cause),
        ("affected", affected + (f"; fixed in {row['fixed_in']}" if row["fixed_in"] else "")),
        ("runs on", fix.hardware),
        ("correction", fix.correction),
        ("cost", fix.cost),
        ("worst cost", f"measured: {fix.worst_cost}" if fix.worst_cost else "tokens/s were not measured"),
        ("default", f"{row['default']}: {fix.default_reason}"),
        ("switch", f"{off}, {on}" if fix.default else f"{on} (it is off by default), {off}"),
        (
            "observe",
            f"no: {fix.unobservable}" if fix.unobservable else "yes: ATTNFIX=observe counts the calls in which it would run",
        ),
        ("without it", avoided(fix) or "no way was looked for"),
        ("try it", fix.expect),
        ("remove", f"when {row['remove_when']}"),
        (
            "upstream",
            "\n".join(link if "://" in link else f"our report: {link} in the source archive" for link in row["links"]),
        ),
    )
    if switches.only() is not None and (why := switches.left_off(fix)):
        lines = (*lines, ("here", f"off: {why}"))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in lines:
        grid.add_row(name, Text(text))
    out = console()
    out.width = min(out.width, 110)
    out.print(Text.assemble((fix.id, "bold"), f": {fix.title}\n"))
    out.print(grid)
    prove = f"`attnfix prove --fix {fix.id}` shows it on this machine"
    out.print(Text(f"\nNext: {prove}; `attnfix doctor` says whether your deployment would hit it."))
    if address := documentation():
        out.print(Text(f"Documentation: {address}"))
