"""docs/symptoms.md: from what an operator sees to the fixes."""

from __future__ import annotations

import re

from attnfix.cli.listing import describe, span
from attnfix.compat.fix import Fix
from attnfix.compat.symptoms import SYMPTOMS
from attnfix.patches.catalogue import FIXES
from scripts.pages import support_page


def page() -> str:
    return support_page.rendered("symptoms.md", symptoms=symptoms(), anchor=anchor)


def symptoms() -> list[tuple[str, list[tuple[Fix, str]]]]:
    """Each symptom with its fixes, and the releases that have the bug."""
    return [(symptom, _with(symptom)) for symptom in SYMPTOMS]


def _with(symptom: str) -> list[tuple[Fix, str]]:
    """Fixes of that symptom and the releases that have the bug; those of which it is the most telling symptom come first."""
    found = sorted((fix for fix in FIXES if symptom in fix.symptoms), key=lambda fix: fix.symptoms.index(symptom))
    return [(fix, span(affected) if (affected := describe(fix)["affected"]) else "between releases") for fix in found]


def anchor(heading: str) -> str:
    """The anchor that GitHub, and the site, give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
