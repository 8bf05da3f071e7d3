#!/usr/bin/env python3
"""What attnfix costs where nobody asked for it: interpreter start, the import of `prometheus_client` (with the door, it joins
the metrics page), and a call through a wrapper. Ratios, not promises.

    python scripts/bench_start.py [--runs 60]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import timeit
from importlib.util import find_spec
from time import perf_counter

from attnfix.compat.fix import Place
from attnfix.compat.records import Record
from attnfix.compat.states import FixState
from attnfix.compat.wrapping import TargetWrapper
from attnfix.patches.catalogue import FIXES


def start_ms(code: str, flags: tuple[str, ...]) -> float:
    """Time of one interpreter start that runs `code`, in milliseconds."""
    begin = perf_counter()
    subprocess.run([sys.executable, *flags, "-c", code], check=True)
    return 1e3 * (perf_counter() - begin)


def correction(wrapped, instance, args, kwargs):
    return wrapped(*args, **kwargs)


def counting(wrapped, instance, args, kwargs):
    result = wrapped(*args, **kwargs)
    wrapped.corrected(rows=3)
    return result


class Engine:
    def plain(self, a, b=2):
        return a

    def wrapped(self, a, b=2):
        return a

    def corrected(self, a, b=2):
        return a


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=60)
    runs = arguments.parse_args().runs
    folder = __import__("attnfix").__path__[0].rpartition("/")[0]
    without = f"import sys; sys.path.insert(0, {folder!r})"
    door = without + "; import attnfix._autoload"
    compare("interpreter start", without, door, runs)
    if find_spec("prometheus_client"):
        page = "import prometheus_client"
        closed = "import sys; sys.meta_path = [f for f in sys.meta_path if type(f).__module__ != 'attnfix._autoload']; "
        compare("with prometheus_client", closed + page, page, runs, flags=("-I",))

    os.environ["ATTNFIX_RUN_DIR"] = tempfile.mkdtemp()
    record = Record(1)
    state = FixState(FIXES[0], counters=record.counters(0))
    for name, run in (("wrapped", correction), ("corrected", counting)):
        wrapper = TargetWrapper(vars(Engine)[name], Place(__name__, f"Engine.{name}"))
        setattr(Engine, name, wrapper.add(state, run))
    engine, number = Engine(), 100_000
    for name, armed in (("plain", False), ("wrapped", False), ("wrapped", True), ("corrected", True)):
        state.armed = armed
        method = getattr(engine, name)
        seconds = min(timeit.repeat(lambda method=method: method(1, b=3), number=number, repeat=5))
        print(f"one call, {name}{' and armed' if armed else ''}: {1e6 * seconds / number:.2f} µs")


def compare(what: str, without: str, door: str, runs: int, flags: tuple[str, ...] = ("-I", "-S")) -> None:
    bare, ours = [], []
    for _ in range(runs):  # in turns: a neighbour's load falls on both
        bare.append(start_ms(without, flags))
        ours.append(start_ms(door, flags))
    print(f"{what}: bare {min(bare):.2f} ms, with the door {min(ours):.2f} ms (minimum of {runs})")
    by_median = statistics.median(ours) - statistics.median(bare)
    print(f"  the door: {min(ours) - min(bare):.2f} ms by minimum, {by_median:.2f} by median")


if __name__ == "__main__":
    main()
