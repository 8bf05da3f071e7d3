"""`attnfix forecast ENGINE==RELEASE`: what changes for the fixes on an upgrade. Offline, from the ledgers, and no torch."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from packaging.version import InvalidVersion, Version

from attnfix.compat.engines import ENGINES, installed_root, version_beside
from attnfix.compat.fix import Fix
from attnfix.compat.gate import judge, ledger
from attnfix.compat.known_bug import KnownBug
from attnfix.patches.catalogue import FIXES, known_bugs

from . import completion, releases
from .errors import CliError
from .listing import default
from .output import coloured, print_json, print_line, print_table

NAME = "forecast"
BRIEF = "what an upgrade changes, and when attnfix can go"
HELP = "What an upgrade changes: which fixes it still needs, and the first release that needs none. From the ledgers: offline."
EXAMPLE = "attnfix forecast sglang==0.5.23 --from sglang==0.5.9"

NO_LONGER, STILL, NEWLY, NOT_NEEDED, UNKNOWN = "no longer needed", "still needed", "newly needed", "not needed", "unknown"
_OFF = {"on": "", "off": " (off by default)"}
#: Change of a known bug without a fix
BROUGHT, MENDED, KEPT = "brought", "mended", "kept"
_OF_BUGS = {(False, True): BROUGHT, (True, False): MENDED, (True, True): KEPT}
_CHANGES = {(True, False): NO_LONGER, (True, True): STILL, (False, True): NEWLY, (False, False): NOT_NEEDED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    to = parser.add_argument(
        "to",
        nargs="?",
        metavar="ENGINE[==RELEASE]",
        help="the release to go to; the engine alone: the newest one known; default: the engine installed here",
    )
    origin = parser.add_argument("--from", dest="origin", metavar="ENGINE==RELEASE", help="default: the engine installed here")
    completion.offer(to, releases.every)
    completion.offer(origin, releases.every)


def run(options: argparse.Namespace) -> int:
    engine, wanted = releases.parse_optional(options.to or releases.here())
    books = {fix: ledger.load(fix) for fix in FIXES if fix.engine == engine}
    known = releases.known(books.values())
    to = releases.judged(engine, wanted, books.values()) if wanted else known[-1]
    origin, before = _origin(engine, options.origin, books)
    after = {fix: book.verdict(to) for fix, book in books.items()}
    rows = [
        {"fix": fix.id, "from": a, "to": b, "change": change(a, b), "default": default(fix)}
        for fix, a, b in ((fix, before[fix], after[fix]) for fix in books)
    ]
    healthy = first_healthy(books.values(), known)
    in_the_way = [book.fix for book in books.values() if book.verdict(known[-1]) in (ledger.AFFECTED, ledger.UNKNOWN)]
    found = {
        "engine": engine,
        "from": origin,
        "from_installed": not options.origin,
        "to": to,
        "fixes": rows,
        "known": _known(engine, origin, to),
        "newest_known": known[-1],
        "nothing_needed_from": healthy,
        "in_the_way": in_the_way,
    }
    if options.json:
        print_json(found)
    else:
        _print(found)
    return 0


def change(before: str, after: str) -> str:
    """What happens to a fix between two verdicts of the ledger."""
    if ledger.UNKNOWN in (before, after):
        return UNKNOWN
    return _CHANGES[before == ledger.AFFECTED, after == ledger.AFFECTED]


def _known(engine: str, origin: str, to: str) -> list[dict[str, Any]]:
    """The bugs without a fix that one of the two releases has, by number. Of an origin without a number none is known."""
    try:
        before: Version | None = Version(origin)
    except InvalidVersion:
        before = None
    has = [(bug, bool(bug.in_release(before)), bool(bug.in_release(Version(to)))) for bug in known_bugs(engine)]
    return [_bug(bug, _OF_BUGS[a, b]) for bug, a, b in has if a or b]


def _bug(bug: KnownBug, change: str) -> dict[str, Any]:
    return {"bug": bug.id, "change": change, "title": bug.title, "avoid": bug.avoid}


def first_healthy(books: Collection[ledger.Ledger], known: Sequence[str]) -> str | None:
    """The smallest of the `known` releases from which on no fix is needed and every one is judged; None: none yet."""
    found = None
    for release in known:
        needed = any(book.verdict(release) in (ledger.AFFECTED, ledger.UNKNOWN) for book in books)
        found = None if needed else found or release
    return found


def _origin(engine: str, named: str | None, books: Mapping[Fix, ledger.Ledger]) -> tuple[str, dict[Fix, str]]:
    """The release to go from, with its verdicts: those of the ledger, or of the code that is installed here."""
    if named:
        other, release = releases.parse(named)
        if other != engine:
            raise CliError(f"--from names {other}, but the forecast is for {engine}", 2)
        release = releases.judged(engine, release, books.values())
        return release, {fix: book.verdict(release) for fix, book in books.items()}
    root = installed_root(ENGINES[engine])
    if root is None:
        raise CliError(f"no {engine} is installed here; name the release you have, as in --from {releases.newest(engine)}", 2)
    return version_beside(root) or "unknown", {fix: judge.judge(fix, root).kind for fix in books}


def _print(found: dict[str, Any]) -> None:
    engine, colours = found["engine"], {NO_LONGER: "green", STILL: "yellow", NEWLY: "red", NOT_NEEDED: "dim"}
    print_table(
        f"{engine} {found['from']}{' (installed)' if found['from_installed'] else ''} → {found['to']}",
        ("fix", "from", "to", "change"),
        (
            (row["fix"], coloured(row["from"]), coloured(row["to"]), coloured(row["change"], colours.get(row["change"])))
            for row in found["fixes"]
        ),
    )
    for kind in (NO_LONGER, STILL, NEWLY, UNKNOWN):
        if names := [row["fix"] + _OFF[row["default"]] for row in found["fixes"] if row["change"] == kind]:
            print_line(f"{kind}: {', '.join(names)}")
    for kind in (BROUGHT, MENDED, KEPT):
        if names := [row["bug"] for row in found["known"] if row["change"] == kind]:
            print_line(f"bugs without a fix, {kind}: {', '.join(names)}")
    if found["nothing_needed_from"]:
        print_line(f"No fix is needed from {engine} {found['nothing_needed_from']} on (newest known: {found['newest_known']}).")
    else:
        print_line(
            f"No published release yet needs no fix; in the newest known, {found['newest_known']}, these stand in the way: "
            + ", ".join(found["in_the_way"])
        )
    print_line("`attnfix explain BUG` says what goes wrong, and when to remove a fix.")
