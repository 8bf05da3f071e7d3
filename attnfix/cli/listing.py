"""`attnfix list`: every fix, what it is for and which releases need it."""

from __future__ import annotations

import argparse
import re
from typing import Any

from attnfix.compat.engines import ENGINES
from attnfix.compat.fix import Fix
from attnfix.compat.gate import ledger
from attnfix.compat.known_bug import KnownBug
from attnfix.patches.catalogue import BY_ID, FIXES, known_by_id, ways_around

from .errors import CliError, no_such
from .output import print_json, print_line, print_table

NAME = "list"
BRIEF = "all fixes: what goes wrong, which releases need them"
HELP = "Every fix: what it is for, which releases need it, its switch."
EXAMPLE = "attnfix list --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def named(name: str) -> Fix | KnownBug:
    """The fix or the known bug of that id, or of that id without its engine. Raises CliError with exit code 2."""
    every: dict[str, Fix | KnownBug] = {**BY_ID, **known_by_id()}
    found = [each for each in every if name in (each, each.partition(".")[2])]
    if len(found) > 1:
        raise CliError(f"{name!r} is a fix of both engines: name {' or '.join(found)}", 2)
    if not found:
        raise no_such("fix and no known bug", name, every, all_by="`attnfix list` and `attnfix known` list all")
    return every[found[0]]


def fix_named(name: str) -> Fix:
    """The same of a fix alone."""
    found = named(name)
    if isinstance(found, KnownBug):
        raise CliError(f"{found.id} is a known bug without a fix: there is nothing to prove; `attnfix explain` tells of it", 2)
    return found


def describe(fix: Fix) -> dict[str, Any]:
    """One fix as data: the row of `attnfix list --json` and of the README's table."""
    known = ledger.load(fix)
    return {
        "fix": fix.id,
        "engine": fix.engine,
        "title": fix.title,
        "harm": fix.harm,
        "symptom": fix.symptom,
        "cause": fix.cause,
        "correction": fix.correction,
        "hardware": fix.hardware,
        "affected": affected_by(fix),
        "fixed_in": known.fixed_in(),
        "upstream": str(fix.upstream),
        "links": list(fix.upstream.links.values()),
        "switch": fix.switch,
        "default": default(fix),
        "default_reason": fix.default_reason,
        "observable": fix.unobservable is None,
        "observable_reason": fix.unobservable,
        "cost": fix.cost,
        "worst_cost": fix.worst_cost and fix.worst_cost._asdict(),
        "avoid": fix.avoid,
        "expect": fix.expect,
        "remove_when": remove_when(fix, known.fixed_in()),
    }


def affected_by(fix: Fix) -> list[str]:
    """The releases that have the bug, in order."""
    return [release for release, verdict in ledger.load(fix).releases() if verdict == ledger.AFFECTED]


def avoided(fix: Fix) -> str:
    """How to get by without attnfix, and how that is known; empty where no way was looked for."""
    if not fix.avoid:
        return ""
    ran = [(way, len(releases)) for way, releases in ways_around().get(fix.id, {}).items() if releases]
    if not ran:
        return f"{fix.avoid} Read in the engine's code, not run."
    affected, (first, count) = f"of {len(affected_by(fix))} affected releases", ran[0]
    if len(ran) == 1 and not re.search(r"`|\. ", fix.avoid.replace(first, "")):  # no other flag, and no other sentence
        return f"{fix.avoid} Run on the CPU in {count} {affected}: stock is right with it."
    ways = "; ".join(f"{way} ({count} {affected})" for way, count in ran)
    return f"{fix.avoid} Run on the CPU, and stock is right: {ways}. The rest is read in the engine's code, not run."


def default(fix: Fix) -> str:
    return "on" if fix.default else "off"


def remove_when(fix: Fix, fixed_in: str | None) -> str:
    """When nobody needs the fix, as it says or as the first corrected release does; behind "remove it when"."""
    engine = ENGINES[fix.engine].title
    below = f"no {engine} below {fixed_in} is served" if fixed_in else f"no {engine} with the bug is served"
    return fix.remove_when or below


def span(releases: list[str]) -> str:
    """ "0.5.3 … 0.5.10.post1 (21)" of a sorted list."""
    if not releases:
        return "none"
    return releases[0] if len(releases) == 1 else f"{releases[0]} … {releases[-1]} ({len(releases)})"


def run(options: argparse.Namespace) -> int:
    rows = [describe(fix) for fix in FIXES]
    if options.json:
        print_json({"fixes": rows})
        return 0
    print_table(
        f"{len(rows)} fixes",
        ("fix", "what goes wrong", "affected releases", "fixed in", "default"),
        ((r["fix"], r["title"], span(r["affected"]), r["fixed_in"] or "-", r["default"]) for r in rows),
    )
    print_line(f"Each has a variable that switches it off, as {rows[0]['switch']}=0. `attnfix explain FIX` tells all of one.")
    return 0
