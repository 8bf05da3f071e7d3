"""`pip install attnfix[cpu]` by itself proves: a fresh environment has the two wheels, and of other packages the extra alone.

All fixes take ten minutes of CPU time. So a tenth of each engine's is proven, drawn; TESTS_DRAWN=all proves every fix, as the
release workflow does.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from attnfix.compat.engines import ENGINES
from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import FIXES
from tests.support import drawn, environments

NEWEST = {
    engine: max((release for fix in FIXES if fix.engine == engine for release, _ in ledger.load(fix).releases()), key=Version)
    for engine in ENGINES
}
PROVEN = [fix for engine in ENGINES for fix in drawn.tenth([fix for fix in FIXES if fix.engine == engine], f"alone {engine}")]


@pytest.fixture(scope="module")
def alone(wheels, tmp_path_factory) -> environments.Environment:
    """torch is linked: it is most of a gigabyte. pip brings everything else, what torch needs included."""
    folder = tmp_path_factory.mktemp("alone")
    environment = environments.bare(folder / "env")
    (environment.site / "engine-requirements.pth").unlink()
    for path in {Path(str(file)).parts[0] for file in importlib.metadata.files("torch") or ()} - {"..", "__pycache__"}:
        (environment.site / path).symlink_to(importlib.metadata.distribution("torch").locate_file(path))
    command = [sys.executable, "-m", "pip", "--python", environment.python, "install", "--quiet", "--no-compile"]
    constraints = ["--constraint", str(environments.ROOT / "requirements" / "cpu.txt")]
    subprocess.run(
        [*command, *constraints, "--find-links", str(wheels[0].parent), "attnfix[cpu]"], check=True, capture_output=True
    )
    return environment


def test_the_extra_alone_proves_on_the_newest_releases(alone):
    engines = [word for engine, release in NEWEST.items() for word in ("--engine", f"{engine}=={release}")]
    fixes = [word for fix in PROVEN for word in ("--fix", fix.id)]
    command = [alone.python, "-m", "attnfix", "prove", "--json", "--seed", "1", *engines, *fixes]
    done = subprocess.run(command, env=alone.variables(), cwd=alone.folder, capture_output=True, text=True)
    results = json.loads(done.stdout)["results"]
    assert {row["fix"] for row in results} == {fix.id for fix in PROVEN}
    wrong = [row for row in results if row["verdict"] in ("failed", "unproven", "unknown source")]
    assert done.returncode == 0 and not wrong, (wrong, done.stderr)
