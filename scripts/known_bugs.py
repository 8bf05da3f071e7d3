#!/usr/bin/env python3
"""Holds the known bugs against the code of the releases that they name: places that exist, and that change where a bug ends.

    python -m scripts.known_bugs [BUG ...]      exit code 1: something does not hold

Of a bug that lives, a release that came out since has the bug still if its code did not change; else somebody has to read it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache

from rich.progress import track

from attnfix.cli import releases
from attnfix.compat.gate import judge
from attnfix.compat.gate.source_files import Sources
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.releases import fetch
from attnfix.patches.catalogue import known_by_id


@cache
def _sources(engine: str, release: str) -> Sources:
    return Sources(fetch.fetch(engine, release) / engine, release)


def wrong(bug: KnownBug) -> Iterator[str]:
    """A sentence for each thing that does not hold."""
    every = releases.of(bug.engine)
    affected = bug.affected(every)
    if not affected:
        yield "no release that attnfix judges has it"
        return

    def code(release: str) -> tuple[str | None, ...]:
        digests: tuple[str | None, ...] = judge.digests_of(bug.code_paths, _sources(bug.engine, release))
        return digests

    for release in dict.fromkeys((affected[0], affected[-1], *bug.ran)):
        if release not in affected:
            yield f"{release} is said to have shown it, and not to have it"
        if not any(code(release)):
            yield f"{release} has none of its code"
    if bug.fixed_in:
        if bug.fixed_in not in every:
            yield f"{bug.fixed_in} is no release that attnfix judges"
        elif code(bug.fixed_in) == code(affected[-1]):
            yield f"{bug.fixed_in} has the code of {affected[-1]}"
    for release in every[every.index(affected[-1]) + 1 :] if bug.read_to else ():
        same = code(release) == code(affected[-1])
        yield f"{release} was not read; its code {'is' if same else 'is not'} that of {affected[-1]}"


def main(words: list[str]) -> int:
    bugs = [bug for bug in known_by_id().values() if not words or bug.id in words]
    found = [f"{bug.id}: {sentence}" for bug in track(bugs, "known bugs") for sentence in wrong(bug)]
    for sentence in found:
        print(sentence)
    print(f"{len(bugs)} known bugs, {len(found)} to look at")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
