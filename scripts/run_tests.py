#!/usr/bin/env python3
"""Runs all that `make test` asks for, and says how long each part took, beside what it took when that was last recorded.

python -m scripts.run_tests            stops at the first part that fails, with its exit code
python -m scripts.run_tests --record   on a quiet machine: writes the seconds that the next runs are compared with
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree  # nosec B405: of pytest's own report
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from scripts.pages.robustness_table import PARTS

ROOT = Path(__file__).resolve().parents[1]
_REPORT = ROOT / "build" / "tests.xml"
_RECORD = ROOT / "docs" / "evidence" / "test-seconds.json"
_SLOWEST = 10
#: A benchmark is no test; every Python with every wrapt takes minutes to set up, an engine's own tests take as long. `make
#: robustness` runs them.
LEFT_TO_ROBUSTNESS = ("cost", "interpreters", "engine_tests")
#: A part that has so many seconds, whatever it gets done in them: nothing runs beside it
ALONE = ("parsers",)
#: name -> Python's arguments
Steps = dict[str, list[str]]


def stages() -> dict[str, Steps]:
    """What is run, in order. The steps of a stage run two at a time: each alone leaves a core idle now and then."""
    tests = ["-m", "pytest", "-n", "2", "--dist", "worksteal", "--durations", "10", "--junit-xml", str(_REPORT)]
    parts = [part for part in PARTS if part not in LEFT_TO_ROBUSTNESS]
    robustness = {part: ["-m", "tests.robustness", "--quick", "--part", part] for part in parts}
    return {
        "tests": {"tests": tests},
        "proofs": {"proofs": ["-m", "scripts.ledger.matrix", "--sample"]},
        "ledgers": {"ledgers": ["-m", "scripts.ledger.ledgers", "--check"]},
        **{f"robustness: {part}": {part: robustness.pop(part)} for part in ALONE if part in robustness},
        "robustness": robustness,
    }


def run(steps: Steps) -> tuple[int, Counter[str]]:
    """The first exit code that is not 0, and the seconds of each step. One that fails ends the stage."""
    failed: list[int] = []

    def one(name: str) -> float:
        if failed:
            return 0.0
        began = time.monotonic()
        command = [sys.executable, *steps[name]]
        environment = {"ROBUSTNESS_SEED": "1", "TESTS_FILES": "third", **os.environ}
        with tempfile.TemporaryFile("w+") as said:  # what runs side by side says, one after the other
            output = said if len(steps) > 1 else None
            code = subprocess.run(command, cwd=ROOT, env=environment, stdout=output, stderr=output).returncode
            said.seek(0)
            print(said.read(), end="", flush=True)
        if code:
            failed.append(code)
            print(f"{name}: failed, exit {code}", flush=True)
        return time.monotonic() - began

    with ThreadPoolExecutor(2) as two:
        seconds = dict(zip(steps, two.map(one, steps)))
    return next(iter(failed), 0), Counter(seconds)


def per_file(report: Path) -> Counter[str]:
    """Seconds that the tests of each file took, of both processes together."""
    seconds: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):  # nosec B314
        seconds[f"{case.get('classname', '').replace('.', '/')}.py"] += float(case.get("time", 0))  # type: ignore[assignment]
    return seconds


def tell(names: Mapping[str, float], recorded: Mapping[str, float], notes: Mapping[str, str]) -> None:
    for name, seconds in names.items():
        before = f"{recorded[name]:6.0f} s" if name in recorded else f"{'new':>8}"
        print(f"{seconds:6.0f} s  {before}  {name}{notes.get(name, '')}")


def main(argv: list[str] | None = None) -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--record", action="store_true", help="write the seconds of this run, where nothing fails")
    options = arguments.parse_args(argv)
    took: Counter[str] = Counter()
    parts: Counter[str] = Counter()
    idle: dict[str, str] = {}
    code = 0
    _REPORT.unlink(missing_ok=True)
    for stage, steps in stages().items():
        began, before = time.monotonic(), psutil.cpu_times()
        code, seconds = run(steps)
        took[stage] = time.monotonic() - began  # type: ignore[assignment]  # typeshed counts in whole numbers
        after = psutil.cpu_times()
        share = (after.idle - before.idle) / max(1e-9, sum(after) - sum(before))
        idle[stage] = f", cores idle {share:.0%}"
        if len(steps) > 1:
            parts += seconds
        if code:
            break
    if _REPORT.is_file():
        parts += per_file(_REPORT)
    recorded = json.loads(_RECORD.read_text()) if _RECORD.is_file() else {}
    print(f"{sum(took.values()):.0f} s, each stage now and when it was recorded:")
    tell(took, recorded, idle)
    print("the slowest parts, test files and robustness tests, two at a time:")
    tell(dict(parts.most_common(_SLOWEST)), recorded, {})
    if options.record and not code:
        _RECORD.write_text(json.dumps({name: round(seconds) for name, seconds in (took + parts).items()}, indent=1) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
