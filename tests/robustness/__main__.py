#!/usr/bin/env python3
"""Tries attnfix under wrong sources, faults, load and foreign patchers, and writes what came out.

    python -m tests.robustness                    all parts; figures go to docs/evidence/robustness, the table to docs/safety.md
    python -m tests.robustness --part faults      one of them
    python -m tests.robustness --quick            the version of CI: fewer of everything, nothing is written

Exits 1 when anything came out wrong.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import time
from dataclasses import asdict

from scripts.pages.robustness_table import EVIDENCE, PARTS
from tests.robustness import Row


def main() -> int:
    options = _parser().parse_args()
    began, wrong = time.monotonic(), 0

    def say(sentence: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {sentence}", flush=True)

    for part in options.part or PARTS:
        say(part)
        started = time.monotonic()
        try:
            rows = importlib.import_module(f"tests.robustness.{part}").run(options.quick, say)
        except Exception as error:  # a part that ends early is a failure of the part, and the others still run
            rows = [Row(part, 0, [f"the part itself ended: {type(error).__name__}: {error}"])]
        seconds = round(time.monotonic() - started)
        for row in rows:
            wrong += len(row.wrong)
            _print(row)
        say(f"{part}: {seconds} s")
        if not options.quick:
            _write(part, seconds, rows)
    say("nothing came out wrong" if not wrong else f"{wrong} came out wrong")
    return 1 if wrong else 0


def _print(row: Row) -> None:
    print(f"  {row.what}: {row.tried} tried, {len(row.wrong)} wrong")
    for name, value in row.figures.items():
        print(f"    {name}: {value}")
    for sentence in row.wrong:
        print(f"    WRONG {sentence}")
    for sentence in row.not_run:
        print(f"    not run: {sentence}")


def _write(part: str, seconds: int, rows: list[Row]) -> None:
    EVIDENCE.mkdir(parents=True, exist_ok=True)
    about = {
        "part": part, "date": time.strftime("%Y-%m-%d"), "seconds": seconds,
        "python": platform.python_version(), "cores": os.cpu_count(),
    }  # fmt: skip
    (EVIDENCE / f"{part}.json").write_text(json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--part", nargs="+", choices=PARTS, help="which (default: all)")
    made.add_argument("--quick", action="store_true", help="fewer of everything; writes nothing")
    return made


if __name__ == "__main__":
    sys.exit(main())
