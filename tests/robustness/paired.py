"""Differences between two sides that are measured in turns: a neighbour's load falls on both."""

from __future__ import annotations

import math
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Run(NamedTuple):
    """What one process took, from start to end, in milliseconds; `cpu` is user and system time of it and its children."""

    wall: float
    cpu: float


def timed(command: list[str], **options: object) -> Run:
    """One process. Raises RuntimeError with what it said where it ends with an error."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, **options)  # type: ignore[call-overload]
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        said = output.read()
    if process.returncode:
        raise RuntimeError(f"exit {process.returncode}: {said[-2000:]}")
    return Run(1e3 * wall, 1e3 * (used.ru_utime + used.ru_stime))


@dataclass(frozen=True)
class Difference:
    """Of one measure: the median of the pairs' differences, and a 95 % confidence interval of it (order statistics)."""

    median: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.median:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def difference(ours: list[float], stock: list[float]) -> Difference:
    return middle([a - b for a, b in zip(ours, stock, strict=True)])


def middle(values: list[float]) -> Difference:
    """The median of what was measured by itself, as a difference from nothing."""
    found = sorted(values)
    reach = _reach(len(found))
    return Difference(statistics.median(found), found[reach], found[-1 - reach], len(found))


def _reach(pairs: int) -> int:
    """How many of the smallest and of the largest differences lie outside the interval: by the binomial distribution of the
    number of differences below the median."""
    below, reach = 0.0, 0
    while reach < (pairs - 1) // 2:
        below += math.comb(pairs, reach) * 0.5**pairs
        if below > 0.025:
            break
        reach += 1
    return max(reach - 1, 0)


def in_turns(
    stock: Callable[[], Run], ours: Callable[[], Run], pairs: int, seconds: float, seed: int = 0
) -> tuple[list[Run], list[Run]]:
    """Both sides, `pairs` times or until `seconds` are over, after one run of each that does not count. A coin says which goes
    first, so that what one leaves behind (caches, a warm disk) favours neither."""
    coin, end = random.Random(seed), time.monotonic() + seconds
    stock(), ours()
    sides: tuple[list[Run], list[Run]] = ([], [])
    for number in range(pairs):
        if number >= 5 and time.monotonic() > end:
            break
        for side in (0, 1) if coin.random() < 0.5 else (1, 0):
            sides[side].append((stock, ours)[side]())
    return sides


def busy() -> str | None:
    """Why a time in ms or µs says little now: others use this machine's cores, and slow ours down. None: quiet."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return f"load average {load:.1f} on {cores} cores" if load > cores + 1 else None
