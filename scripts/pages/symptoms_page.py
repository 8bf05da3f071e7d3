"""docs/symptoms.md: from what an operator sees to the fixes."""

from __future__ import annotations

import re

from attnfix.cli.listing import describe, span
from attnfix.compat.fix import Fix
from attnfix.compat.signs import SIGNS
from attnfix.patches.catalogue import FIXES
from scripts.pages import support_page


def page() -> str:
    return support_page.rendered("symptoms.md", signs=signs(), anchor=anchor)


def signs() -> list[tuple[str, list[tuple[Fix, str]]]]:
    """Each sign with its fixes, and the releases that have the bug."""
    return [(sign, _with(sign)) for sign in SIGNS]


def _with(sign: str) -> list[tuple[Fix, str]]:
    """Fixes of that sign and the releases that have the bug; those of which it is the most telling sign come first."""
    found = sorted((fix for fix in FIXES if sign in fix.signs), key=lambda fix: fix.signs.index(sign))
    return [(fix, span(affected) if (affected := describe(fix)["affected"]) else "between releases") for fix in found]


def anchor(heading: str) -> str:
    """The anchor that GitHub, and the site, give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
