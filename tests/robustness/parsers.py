"""Parsers under a coverage-guided fuzzer: whatever a file, a variable or a launch line holds, the outcome is a declared one."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from . import Row, draw_seed

#: target of fuzz_target.py -> what was tried; seconds each
TARGETS = {
    "ledger_text": "ledger files",
    "record_file": "record files",
    "switch_values": "environment switches",
    "launch_line": "launch commands",
}
SECONDS, PLANTED_SECONDS = 600, 5
QUICK_SECONDS = {"ledger_text": 20, "record_file": 20, "switch_values": 5, "launch_line": 5}


def run(quick: bool, say: Callable[[str], None]) -> list[Row]:
    if importlib.util.find_spec("atheris") is None:
        return [Row(f"fuzzed {what}", 0, not_run=["atheris has no build for this machine"]) for what in TARGETS.values()]
    seed = draw_seed()
    with ThreadPoolExecutor(2) as two:
        planted = two.submit(_fuzz, "planted", PLANTED_SECONDS, seed)
        found = list(two.map(partial(_row, quick=quick, seed=seed, say=say), TARGETS))
        if not planted.result()[0]:
            found[0].wrong.append(f"the fuzzer did not find a planted fault (seed {seed})")
    return found


def _row(target: str, quick: bool, seed: int, say: Callable[[str], None]) -> Row:
    seconds = QUICK_SECONDS[target] if quick else SECONDS
    findings, executed, coverage = _fuzz(target, seconds, seed)
    say(f"{target}: {executed:,} inputs, {len(findings)} findings")
    wrong = [f"{found['where']}: {found['error']} (seed {seed}, input {found['input']})" for found in findings]
    figures = {"time": f"{seconds} s", "branches seen": f"{coverage:,}"}
    return Row(f"fuzzed {TARGETS[target]}", executed, wrong, figures)


def _fuzz(target: str, seconds: int, seed: int) -> tuple[list[dict], int, int]:
    """(undeclared outcomes, inputs tried, edges of code reached) of one run. Raises RuntimeError if the fuzzer itself ended."""
    with tempfile.TemporaryDirectory(prefix="attnfix-fuzz-") as scratch:
        findings = Path(scratch, "findings")
        command = [
            sys.executable,
            "-m",
            f"{__package__}.fuzz_target",
            target,
            str(seconds),
            str(seed),
            str(findings),
        ]
        path = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(
            command, cwd=scratch, env=path, capture_output=True, text=True, errors="replace", timeout=seconds + 600
        )
        executed = re.findall(r"number_of_executed_units: (\d+)", done.stderr)
        if done.returncode or not executed:
            raise RuntimeError(f"{target}, seed {seed}: the fuzzer ended with {done.returncode}: {done.stderr[-1000:]}")
        found = [json.loads(line) for line in findings.read_text().splitlines()] if findings.is_file() else []
        return found, int(executed[0]), max(map(int, re.findall(r"cov: (\d+)", done.stderr)), default=0)
