#!/usr/bin/env python3
"""Runs all that `make test` asks for, and prints the ten slowest parts: test files, proofs, robustness tests.

python -m scripts.run_tests            stops at the first step that fails, with its exit code
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree  # nosec B405: of pytest's own report
from collections import Counter
from pathlib import Path

from scripts.pages.robustness_table import PARTS

ROOT = Path(__file__).resolve().parents[1]
_REPORT = ROOT / "build" / "tests.xml"
_SLOWEST = 10
#: A benchmark is no test; every Python with every wrapt takes minutes to set up, an engine's own tests take as long. `make
#: robustness` runs them.
LEFT_TO_ROBUSTNESS = ("cost", "interpreters", "engine_tests")


def steps() -> dict[str, list[str]]:
    """What is run, in order, and its name."""
    tests = ["-m", "pytest", "-n", "2", "--dist", "worksteal", "--durations", "10", "--junit-xml", str(_REPORT)]
    found = {
        "tests": tests,
        "proofs where verdicts change": ["-m", "scripts.ledger.matrix", "--boundaries"],
        "ledgers": ["-m", "scripts.ledger.ledgers", "--check"],
    }
    parts = [part for part in PARTS if part not in LEFT_TO_ROBUSTNESS]
    return found | {f"robustness: {part}": ["-m", "tests.robustness", "--quick", "--part", part] for part in parts}


def per_file(report: Path) -> Counter[str]:
    """Seconds that the tests of each file took, of both processes together."""
    seconds: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):  # nosec B314
        seconds[f"{case.get('classname', '').replace('.', '/')}.py"] += float(case.get("time", 0))
    return seconds


def main() -> int:
    parts: Counter[str] = Counter()
    code = 0
    _REPORT.unlink(missing_ok=True)
    for name, command in steps().items():
        began = time.monotonic()
        code = subprocess.run([sys.executable, *command], cwd=ROOT, env={"ROBUSTNESS_SEED": "1", **os.environ}).returncode
        parts[name] = time.monotonic() - began
        if code:
            print(f"{name}: failed, exit {code}", flush=True)
            break
    total = sum(parts.values())
    if _REPORT.is_file():
        del parts["tests"]
        parts += per_file(_REPORT)
    print(f"{total:.0f} s; the slowest parts (test files: two at a time):")
    for name, seconds in parts.most_common(_SLOWEST):
        print(f"{seconds:6.0f} s  {name}")
    return code


if __name__ == "__main__":
    sys.exit(main())
