"""Which slow tests run, drawn by TESTS_SEED; with TESTS_DRAWN=all every one.

A test whose cases name a `release` runs all that name the newest of them, and of the others one in TENTH, at least one. Of a
test marked `drawn(number)` so many cases run. With TESTS_FILES=third, as `make test` sets it, one file in three of tests/fixes
and tests/integration runs, and each file that the last COMMITS commits changed or whose fix they changed.
"""

from __future__ import annotations

import os
import random
import secrets
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import TypeVar

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[2]
TENTH, THIRD, COMMITS = 10, 3, 20
DRAWN_FILES = "tests/fixes/", "tests/integration/"
_T = TypeVar("_T")
#: Inherited by the processes of a run, so that all of them draw the same
SEED = os.environ.setdefault("TESTS_SEED", str(secrets.randbelow(2**31)))


def tenth(of: Sequence[_T], name: str) -> list[_T]:
    """One in TENTH of them, at least one, for what `name` says; with TESTS_DRAWN=all every one."""
    if os.environ.get("TESTS_DRAWN") == "all":
        return [*of]
    return random.Random(f"{SEED} {name}").sample(of, -(-len(of) // TENTH))


def left_out(items: Iterable) -> set:
    """Those of pytest's `items` that this run leaves out."""
    if os.environ.get("TESTS_DRAWN") == "all":
        return set()
    tests: dict[str, list] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left = {item for name, cases in tests.items() for item in _left_of(cases, random.Random(f"{SEED} {name}"))}
    if os.environ.get("TESTS_FILES") != "third":
        return left
    files = files_left_out(sorted({item.nodeid.partition("::")[0] for item in items}), changed())
    return left | {item for item in items if item.nodeid.partition("::")[0] in files}


def files_left_out(files: Sequence[str], changed: Iterable[str]) -> set[str]:
    """Those of pytest's `files` that are not drawn; both are paths in this tree, with `/`."""
    kept = {test for path in changed for test in files if _tests(test, path)}
    slow = [file for file in files if file.startswith(DRAWN_FILES)]
    return {*slow} - kept - {*random.Random(f"{SEED} files").sample(slow, -(-len(slow) // THIRD))}


def changed() -> list[str]:
    """Files that the last commits changed; none where this tree has no history."""
    done = subprocess.run(["git", "log", f"-{COMMITS}", "--format=", "--name-only"], cwd=ROOT, capture_output=True, text=True)
    return [*dict.fromkeys(done.stdout.split())]


def _tests(test: str, path: str) -> bool:
    """Whether the test is this file, or one of the fix whose folder the file is in."""
    room, engine, fix = (*PurePath(path).parts, "", "", "")[:3]
    return test == path or (room == "patches" and test.startswith(f"tests/fixes/{engine}/test_{fix}"))


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
