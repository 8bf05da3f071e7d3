"""`attnfix explain BUG`: all there is to know of one bug and its fix, for whoever has to decide about it. Offline."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from attnfix.compat.arming import switches
from attnfix.compat.fix import Fix
from attnfix.compat.known_bug import KnownBug
from attnfix.patches.catalogue import BY_ID, known_by_id

from . import completion, known
from .listing import avoided, describe, named, span
from .output import console, documentation, print_json

NAME = "explain"
BRIEF = "one bug: symptom, cause, correction, cost, switch"
HELP = (
    "One bug: symptom, who is affected, links, what avoids it. Of its fix: correction, cost, switch, how to try it, when to "
    "remove it."
)
EXAMPLE = "attnfix explain sglang.zero-kv-rows"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    bug = parser.add_argument("bug", metavar="BUG", help="as in sglang.zero-kv-rows, or zero-kv-rows")
    completion.offer(bug, lambda: [*BY_ID, *known_by_id()])


def run(options: argparse.Namespace) -> int:
    found = named(options.bug)
    if options.json:
        print_json(describe(found) if isinstance(found, Fix) else known.describe(found))
    elif isinstance(found, Fix):
        _print(found, describe(found))
    else:
        _print_known(found, known.describe(found))
    return 0


def _print_known(bug: KnownBug, row: dict[str, Any]) -> None:
    lines = (
        ("harm", bug.harm),
        ("symptom", bug.symptom),
        ("affected", f"{bug.engine} {span(row['affected'])}" + (f"; fixed in {bug.fixed_in}" if bug.fixed_in else "")),
        ("evidence", bug.evidence),
        ("code", "\n".join(bug.code)),
        ("avoid it", bug.avoid),
        ("attnfix", "has no fix for it, and leaves the code as it is"),
        ("upstream", "\n".join(row["links"]) or f"mended in {bug.fixed_in}; no thread about it was found"),
    )
    _print_grid(bug.id, bug.title, lines, "Next: `attnfix doctor` says whether your deployment would hit it.")


def _print(fix: Fix, row: dict[str, Any]) -> None:
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
    prove = f"`attnfix prove --fix {fix.id}` shows it on this machine"
    last = [f"Next: {prove}; `attnfix doctor` says whether your deployment would hit it."]
    if address := documentation():
        last.append(f"Documentation: {address}")
    _print_grid(fix.id, fix.title, lines, *last)


def _print_grid(id: str, title: str, lines: Iterable[tuple[str, str]], *last: str) -> None:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in lines:
        grid.add_row(name, Text(text))
    out = console()
    out.width = min(out.width, 110)
    out.print(Text.assemble((id, "bold"), f": {title}\n"))
    out.print(grid)
    out.print()
    for sentence in last:
        out.print(Text(sentence))
