"""`attnfix verdict ENGINE==RELEASE`: what the ledger says of a published release. Offline, and no torch."""

from __future__ import annotations

import argparse
from typing import Any

from packaging.version import Version

from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import FIXES

from . import completion, releases
from .output import coloured, complain, print_json, print_line, print_table

NAME = "verdict"
BRIEF = "what every fix finds in a published release"
HELP = "What every fix finds in a published release, from the ledger: offline."
EXAMPLE = "attnfix verdict sglang==0.5.9"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    release = parser.add_argument(
        "release", nargs="?", metavar="ENGINE==RELEASE", help="as in sglang==0.5.9; default: what is installed here"
    )
    completion.offer(release, releases.every)


def run(options: argparse.Namespace) -> int:
    engine, release = releases.parse_or_installed(options.release or releases.here())
    known = [(fix, ledger.load(fix)) for fix in FIXES if fix.engine == engine]
    rows: list[dict[str, Any]] = [
        {"fix": fix.id, "verdict": book.verdict(release), "fixed_in": book.fixed_in()} for fix, book in known
    ]
    if options.json:
        print_json({"engine": engine, "release": release, "fixes": rows})
    else:
        print_table(
            f"{engine} {release}",
            ("fix", "verdict", "fixed in"),
            ((row["fix"], coloured(row["verdict"]), row["fixed_in"] or "-") for row in rows),
        )
        print_line("`attnfix explain FIX` says what goes wrong; `attnfix doctor` which of them your deployment would hit.")
    if all(row["verdict"] == ledger.UNKNOWN for row in rows):
        complain(f"{engine} {release} was never judged; {_where(release, [book for _, book in known])}")
        return 1
    return 0


def _where(release: str, books: list[ledger.Ledger]) -> str:
    """Where an unknown release lies among those that were judged."""
    newest = max((list(book.releases())[-1][0] for book in books), key=Version)
    if Version(release) > Version(newest):
        return f"the newest that was is {newest}"
    doubtful = [book.fix for book in books if book.may_be_affected(release)]
    if doubtful:
        return f"it lies before the release that fixes {', '.join(doubtful)}, so it may have the bug: attnfix does not reach it"
    return "it lies outside the releases that were run"
