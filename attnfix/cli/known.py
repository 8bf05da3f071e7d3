"""`attnfix known`: the bugs of published releases that attnfix knows and does not correct. Offline, and no torch."""

from __future__ import annotations

import argparse
from typing import Any

from attnfix.compat.known_bug import KnownBug
from attnfix.patches.catalogue import known_by_id

from . import releases
from .listing import span
from .output import print_json, print_line, print_table

NAME = "known"
BRIEF = "bugs without a fix: releases, evidence, what to set"
HELP = "The bugs of published releases that attnfix knows and does not correct: releases, evidence, what avoids each."
EXAMPLE = "attnfix known --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def describe(bug: KnownBug) -> dict[str, Any]:
    """One bug as data."""
    return {
        "bug": bug.id,
        "engine": bug.engine,
        "title": bug.title,
        "harm": bug.harm,
        "symptom": bug.symptom,
        "affected": bug.affected(releases.of(bug.engine)),
        "fixed_in": bug.fixed_in,
        "code": list(bug.code),
        "evidence": bug.evidence,
        "upstream": str(bug.upstream),
        "links": list(bug.upstream.links.values()),
        "avoid": bug.avoid,
    }


def run(options: argparse.Namespace) -> int:
    rows = [describe(bug) for bug in known_by_id().values()]
    if options.json:
        print_json({"known": rows})
        return 0
    print_table(
        f"{len(rows)} bugs without a fix",
        ("bug", "what goes wrong", "affected releases", "fixed in"),
        ((row["bug"], row["title"], span(row["affected"]), row["fixed_in"] or "-") for row in rows),
    )
    print_line("`attnfix explain BUG` tells all of one; `attnfix doctor` says which of them your server would hit.")
    return 0
