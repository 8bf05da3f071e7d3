"""Which cases of slow tests run: the newest release and some older ones, drawn by TESTS_SEED; with TESTS_DRAWN=all every case.

A test whose cases name a `release` runs all that name the newest of them, and of the others one in TENTH, at least one. Of a
test marked `drawn(number)` so many cases run.
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Iterable

from packaging.version import InvalidVersion, Version

TENTH = 10
#: Inherited by the processes of a run, so that all of them draw the same
SEED = os.environ.setdefault("TESTS_SEED", str(secrets.randbelow(2**31)))


def left_out(items: Iterable) -> set:
    """Those of pytest's `items` that this run leaves out."""
    if os.environ.get("TESTS_DRAWN") == "all":
        return set()
    tests: dict[str, list] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {item for name, cases in tests.items() for item in _left_of(cases, random.Random(f"{SEED} {name}"))}


def _left_of(cases: list, draw: random.Random) -> set:
    if mark := cases[0].get_closest_marker("drawn"):
        return set(cases) - set(draw.sample(cases, min(mark.args[0], len(cases))))
    releases = {case: release for case in cases if (release := _release(case)) is not None}
    older = [case for case, release in releases.items() if release < max(releases.values())]
    return set(older) - set(draw.sample(older, -(-len(older) // TENTH)))


def _release(case) -> Version | None:
    """The release that a case names."""
    try:
        return Version(case.callspec.params["release"])
    except (AttributeError, KeyError, TypeError, InvalidVersion):
        return None
