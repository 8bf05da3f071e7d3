"""From what an operator sees to the fixes: docs/symptoms.md over all releases, and a page for each engine by release."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from typing import TypeVar

from packaging.version import Version

from attnfix.cli import releases
from attnfix.cli.listing import describe, span
from attnfix.compat.engines import ENGINES
from attnfix.compat.fix import Fix
from attnfix.compat.gate import ledger
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SYMPTOMS
from attnfix.patches.catalogue import FIXES, known_bugs, known_by_id
from scripts.pages import support_page

_Bug = TypeVar("_Bug", Fix, KnownBug)
#: Rows of a release, so that its table is taken in at one look
_MOST = 10


def page() -> str:
    sections = [(symptom, [(fix, _releases(fix)) for fix in _over_all(symptom)]) for symptom in SYMPTOMS]
    known = {symptom: _with(symptom, known_by_id().values()) for symptom in SYMPTOMS}
    facts = {"known": known, "span": _of_bug, "anchor": anchor, "by_release": release_table()}
    return support_page.rendered("symptoms.md", sections=sections, **facts)


def engine_page(engine: str) -> str:
    groups = [(names, rows, _told_once(_known(engine, names[0]))) for names, rows in _groups(engine)]
    return support_page.rendered("symptoms_engine.md", engine=ENGINES[engine], groups=groups, bugs=known_bugs(engine))


def release_table(folder: str = "") -> str:
    """A row for each engine: its releases, newest first, each a link to what is wrong in it."""
    rows = ("| your engine | your release |", "|---|---|")
    return "\n".join([*rows, *(f"| {engine.title} | {_links(engine.name, folder)} |" for engine in ENGINES.values())])


def anchor(heading: str) -> str:
    """The anchor that GitHub, and the site, give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _links(engine: str, folder: str) -> str:
    title = ENGINES[engine].title
    named = (", ".join(releases) for releases, _ in _groups(engine))
    return " · ".join(f"[{name}]({folder}symptoms-{engine}.md#{anchor(f'{title} {name}')})" for name in named)


@cache
def _groups(engine: str) -> list[tuple[list[str], list[tuple[str, list[Fix]]]]]:
    """Neighbouring releases that have the same bugs, newest first, and what is seen of those that fixes correct."""
    books = [(fix, ledger.load(fix)) for fix in FIXES if fix.engine == engine]
    found: dict[str, list[Fix]] = {}
    for fix, book in books:
        for release, verdict in book.releases():
            found.setdefault(release, []).extend([fix] if verdict == ledger.AFFECTED else [])
    newest = sorted(found, key=Version, reverse=True)
    same = groupby(newest, lambda release: (found[release], _known(engine, release)))
    return [(list(names), _rows(fixes)) for (fixes, _), names in same]


def _known(engine: str, release: str) -> list[KnownBug]:
    return [bug for bug in known_bugs(engine) if bug.in_release(Version(release))]


def _told_once(bugs: list[KnownBug]) -> list[tuple[str, list[KnownBug]]]:
    """Symptom → the bugs of which it is the most telling one."""
    rows = ((symptom, [bug for bug in bugs if bug.symptoms[0] == symptom]) for symptom in SYMPTOMS)
    return [(symptom, found) for symptom, found in rows if found]


def _of_bug(bug: KnownBug) -> str:
    return f"{ENGINES[bug.engine].title} {span(bug.affected(releases.of(bug.engine)))}"


def _rows(fixes: list[Fix]) -> list[tuple[str, list[Fix]]]:
    """Symptom → its fixes. Above ten rows, one that is no fix's most telling symptom goes first."""
    rows = [(symptom, found) for symptom in SYMPTOMS if (found := _with(symptom, fixes))]
    spare = [row for row in rows if all(fix.symptoms[0] != row[0] for fix in row[1])]
    gone = spare[-excess:] if (excess := len(rows) - _MOST) > 0 else []
    return [row for row in rows if row not in gone]


def _with(symptom: str, bugs: Iterable[_Bug]) -> list[_Bug]:
    """Fixes or bugs of that symptom; those of which it is the most telling one come first."""
    return sorted((bug for bug in bugs if symptom in bug.symptoms), key=lambda bug: bug.symptoms.index(symptom))


def _over_all(symptom: str) -> list[Fix]:
    """Fixes of that symptom: engine by engine, the most telling first, and of these the one of the newest releases."""
    newest_first = sorted(FIXES, key=lambda fix: Version((_affected(fix) or ["0"])[-1]), reverse=True)
    return [fix for engine in ENGINES for fix in _with(symptom, newest_first) if fix.engine == engine]


def _releases(fix: Fix) -> str:
    affected = _affected(fix)
    return f"{ENGINES[fix.engine].title} {span(affected) if affected else 'between releases'}"


@cache
def _affected(fix: Fix) -> list[str]:
    affected: list[str] = describe(fix)["affected"]
    return affected
