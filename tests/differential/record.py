"""`--record`: launches of the stand-ins in drawn cases, bounded for each kind, into a file that a GPU can replay."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import run, space
from .launches import Kept, read, write


def record(
    engine: str, release: str, file: Path, *, seed: int, cases: int, until: float, most: int, say: Callable[[int, Kept], None],
    axes: dict[str, Any] | None = None,
) -> Kept:  # fmt: skip
    """Stock alone, so many cases or until that time of `time.monotonic`; at most `most` launches of a kind.

    The file is whole after every case: lines of JSON, the first of which says of what they are. One that is there gets more.
    """
    kept = Kept(most)
    about = {"engine": engine, "release": release, "entry_points": f"tests.differential.{engine}.entry_points", "cases": 0}
    if file.exists():
        about, former = read(file)
        if (about["engine"], about["release"]) != (engine, release):
            raise ValueError(f"{file} is of {about['engine']} {about['release']}")
        for launch in former:
            kept.offer(launch)
    side = run.Side(engine, release, stock=True)
    try:
        for index, case in space.cases(engine, release, seed, axes):
            if index >= cases or time.monotonic() > until:
                break
            answer: Any = side.run(space.whole(case), record=most)
            for launch in answer.get("launches", ()):
                kept.offer(launch)
            for why, count in answer.get("skipped", {}).items():
                kept.skipped[why] = kept.skipped.get(why, 0) + count
            about["cases"] += 1
            write(file, about, kept)
            say(index + 1, kept)
    finally:
        side.close()
    return kept
