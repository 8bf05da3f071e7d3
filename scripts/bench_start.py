#!/usr/bin/env python3
"""What attnfix costs where nobody asked for it: interpreter start, and a call through a wrapper. Ratios, not promises.

    python scripts/bench_start.py [--runs 60]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import timeit
from time import perf_counter

from attnfix.compat.fix import Place
from attnfix.compat.states import FixState
from attnfix.compat.wrapping import TargetWrapper
from attnfix.patches.catalogue import FIXES


def start_ms(code: str, runs: int) -> list[float]:
    """Time of `runs` interpreter starts that read site-packages and run `code`, in milliseconds."""
    times = []
    for _ in range(runs):
        begin = perf_counter()
        subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
        times.append(1e3 * (perf_counter() - begin))
    return times


def correction(wrapped, instance, args, kwargs):
    return wrapped(*args, **kwargs)


class Engine:
    def plain(self, a, b=2):
        return a

    def wrapped(self, a, b=2):
        return a


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=60)
    runs = arguments.parse_args().runs
    folder = __import__("attnfix").__path__[0].rpartition("/")[0]
    without = f"import sys; sys.path.insert(0, {folder!r})"
    door = start_ms(without + "; import attnfix._autoload", runs)
    bare = start_ms(without, runs)
    print(f"interpreter start: bare {min(bare):.2f} ms, with the door {min(door):.2f} ms (minimum of {runs})")
    by_median = statistics.median(door) - statistics.median(bare)
    print(f"  the door: {min(door) - min(bare):.2f} ms by minimum, {by_median:.2f} by median")

    state = FixState(FIXES[0])
    wrapper = TargetWrapper(vars(Engine)["wrapped"], Place(__name__, "Engine.wrapped"))
    wrapper.add(state, correction)
    Engine.wrapped = wrapper
    engine, number = Engine(), 100_000
    for name, armed in (("plain", False), ("wrapped", False), ("wrapped", True)):
        state.armed = armed
        method = getattr(engine, name)
        seconds = min(timeit.repeat(lambda method=method: method(1, b=3), number=number, repeat=5))
        print(f"one call, {name}{' and armed' if armed else ''}: {1e6 * seconds / number:.2f} µs")


if __name__ == "__main__":
    main()
