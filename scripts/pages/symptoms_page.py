"""From what an operator sees to the fixes: docs/symptoms.md over all releases, and a page for each engine by release."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import groupby

from packaging.version import Version

from attnfix.cli.listing import describe, span
from attnfix.compat.engines import ENGINES
from attnfix.compat.fix import Fix
from attnfix.compat.gate import ledger
from attnfix.compat.symptoms import SYMPTOMS
from attnfix.patches.catalogue import FIXES
from scripts.pages import support_page

#: Rows of a release, so that its table is taken in at one look
_MOST = 10


def page() -> str:
    sections = [(symptom, [(fix, _releases(fix)) for fix in _over_all(symptom)]) for symptom in SYMPTOMS]
    return support_page.rendered("symptoms.md", sections=sections, anchor=anchor, by_release=release_table())


def engine_page(engine: str) -> str:
    return support_page.rendered("symptoms_engine.md", engine=ENGINES[engine], groups=_groups(engine))


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
    """Neighbouring releases that have the same bugs, newest first, and what is seen of these."""
    books = [(fix, ledger.load(fix)) for fix in FIXES if fix.engine == engine]
    found: dict[str, list[Fix]] = {}
    for fix, book in books:
        for release, verdict in book.releases():
            found.setdefault(release, []).extend([fix] if verdict == ledger.AFFECTED else [])
    newest = sorted(found, key=Version, reverse=True)
    return [(list(releases), _rows(fixes)) for fixes, releases in groupby(newest, found.__getitem__)]


def _rows(fixes: list[Fix]) -> list[tuple[str, list[Fix]]]:
    """Symptom → its fixes. Above ten rows, one that is no fix's most telling symptom goes first."""
    rows = [(symptom, found) for symptom in SYMPTOMS if (found := _with(symptom, fixes))]
    spare = [row for row in rows if all(fix.symptoms[0] != row[0] for fix in row[1])]
    gone = spare[-excess:] if (excess := len(rows) - _MOST) > 0 else []
    return [row for row in rows if row not in gone]


def _with(symptom: str, fixes: Iterable[Fix]) -> list[Fix]:
    """Fixes of that symptom; those of which it is the most telling one come first."""
    return sorted((fix for fix in fixes if symptom in fix.symptoms), key=lambda fix: fix.symptoms.index(symptom))


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
