"""The Makefile says what it does: a line for each step, and in a terminal pip's own progress."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DRY_RUN = ["make", "--dry-run", "demo", "VENV=/nowhere/venv"]

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="no make here")


def environment() -> dict[str, str]:
    """Not what a make above this test has told its children."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}


def pips(text: str) -> list[str]:
    return [line for line in text.splitlines() if "-m pip install" in line]


def test_each_slow_step_is_named_before_it_begins():
    steps = subprocess.run(DRY_RUN, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True).stdout
    assert [line.split('"')[1].split()[0] for line in pips(steps)] == ["1/3", "2/3", "3/3"]
    assert all(" --quiet " in line and " --progress-bar " not in line for line in pips(steps))
    prove = next(at for at, line in enumerate(steps.splitlines()) if "attnfix prove" in line)
    assert steps.splitlines()[prove - 1].startswith("echo ")


def test_a_terminal_sees_pips_progress():
    outer, inner = pty.openpty()
    with subprocess.Popen(DRY_RUN, cwd=ROOT, env=environment(), stdout=inner, stderr=inner) as process:
        os.close(inner)
        seen = b""
        try:
            while part := os.read(outer, 65536):
                seen += part
        except OSError:  # the other end is closed
            pass
    os.close(outer)
    assert process.returncode == 0
    assert len(pips(seen.decode())) == 3 and all(" --progress-bar on " in line for line in pips(seen.decode()))
