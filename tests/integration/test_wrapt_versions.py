"""The wrapper on every wrapt that images have: the unit tests of the wrapper, run beside the oldest and the newest of each."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.environments import ROOT


@pytest.mark.parametrize("wrapt", ["1.16.0", "1.17.3", "2.0.0"])
def test_the_wrapper_holds(wrapt, tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", str(tmp_path), f"wrapt=={wrapt}"], check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    asked = [sys.executable, "-c", "import wrapt; print(wrapt.__version__)"]
    assert subprocess.check_output(asked, env=environment, text=True).strip() == wrapt
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
        "tests/unit/arming/test_wrapper.py",
    ]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-2000:]
