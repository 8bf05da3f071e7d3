"""`attnfix verdict ENGINE==RELEASE`: the bugs of a published release, by the ledger and by number. Offline, and no torch."""

from __future__ import annotations

import argparse
from typing import Any

from packaging.version import Version

from attnfix.compat.fix import Fix
from attnfix.compat.gate import ledger
from attnfix.compat.known_bug import KnownBug
from attnfix.patches.catalogue import FIXES, known_bugs

from . import completion, releases
from .listing import default
from .output import complain, print_json, print_line, print_table

NAME = "verdict"
BRIEF = "which bugs a published release has, and what goes wrong"
HELP = (
    "Which known bugs a published release has, what goes wrong, and whether attnfix corrects it. It needs no network. --json "
    "also names the fixes that this release does not need."
)
EXAMPLE = "attnfix verdict sglang==0.5.9"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    release = parser.add_argument(
        "release", nargs="?", metavar="ENGINE==RELEASE", help="as in sglang==0.5.9; default: what is installed here"
    )
    completion.offer(release, releases.every)


def run(options: argparse.Namespace) -> int:
    engine, release = releases.parse_or_installed(options.release or releases.here())
    known = [(fix, ledger.load(fix)) for fix in FIXES if fix.engine == engine]
    rows = [_row(fix, book, release) for fix, book in known]
    bugs = [_known(bug) for bug in known_bugs(engine) if bug.in_release(Version(release))]
    if options.json:
        print_json({"engine": engine, "release": release, "fixes": rows, "known": bugs})
    else:
        _print(engine, release, rows, bugs)
    if all(row["verdict"] == ledger.UNKNOWN for row in rows):
        complain(f"{engine} {release} was never judged; {_where(release, [book for _, book in known])}")
        return 1
    return 0


def _row(fix: Fix, book: ledger.Ledger, release: str) -> dict[str, Any]:
    verdict, fixed_in = book.verdict(release), book.fixed_in()
    return {"fix": fix.id, "verdict": verdict, "fixed_in": fixed_in, "title": fix.title, "default": default(fix)}


def _known(bug: KnownBug) -> dict[str, Any]:
    return {"bug": bug.id, "fixed_in": bug.fixed_in, "title": bug.title, "avoid": bug.avoid}


def _print(engine: str, release: str, rows: list[dict[str, Any]], bugs: list[dict[str, Any]]) -> None:
    """The bugs that this release has, how many fixes it does not need, and which were never judged on it."""
    has, unknown = ([row for row in rows if row["verdict"] == verdict] for verdict in (ledger.AFFECTED, ledger.UNKNOWN))
    if has:
        print_table(
            f"{engine} {release}",
            ("fix", "what goes wrong", "fixed in", "default"),
            ((row["fix"], row["title"], row["fixed_in"] or "-", row["default"]) for row in has),
        )
    if bugs:
        print_table(
            "Known by the release's number, without a fix",
            ("bug", "what goes wrong", "fixed in"),
            ((row["bug"], row["title"], row["fixed_in"] or "-") for row in bugs),
        )
    if healthy := len(rows) - len(has) - len(unknown):
        print_line(f"{engine} {release} does not have the bugs of {healthy} {'other ' if has else ''}fixes: --json names them.")
    if 0 < len(unknown) < len(rows):
        print_line(f"Unknown, since never judged on {release}: {', '.join(row['fix'] for row in unknown)}.")
    if has or bugs:
        print_line(
            f"Next: `attnfix doctor --engine {engine}=={release} --gpu GPU MODEL_FOLDER -- LAUNCH COMMAND` says which of them "
            "your server would hit. `attnfix explain BUG` tells all of one."
        )


def _where(release: str, books: list[ledger.Ledger]) -> str:
    """Where an unknown release lies among those that were judged."""
    newest = max((list(book.releases())[-1][0] for book in books), key=Version)
    if Version(release) > Version(newest):
        return f"the newest that was is {newest}"
    doubtful = [book.fix for book in books if book.may_be_affected(release)]
    if doubtful:
        return f"it lies before the release that fixes {', '.join(doubtful)}, so it may have the bug: attnfix does not reach it"
    return "it lies outside the releases that were run"
