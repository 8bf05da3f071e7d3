"""Served cases: each needs an engine and attnfix, installed or on PYTHONPATH, attnfix so that its .pth file is processed.

    PYTHONPATH=/opt/vllm-0.25.1 python -m pytest tests/gpu/serving -k order

A case whose bug the installed release has not is skipped. No network: models are made with random weights, prompts are token
ids. Figures go to $ATTNFIX_GPU_OUT (e2e-out), logs of the servers lie beside them; `python -m scripts.evidence` keeps them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.gpu.serving import cases, processes
from tests.gpu.serving.cases import Case


@pytest.fixture(scope="session")
def out() -> Path:
    """The folder of the evidence. Ends the run where the servers' Python cannot use attnfix, before minutes of starts."""
    command = [sys.executable, "-m", "attnfix", "--version"]
    asked = subprocess.run(command, env=processes.environment(), capture_output=True, text=True)
    if asked.returncode:
        pytest.exit(f"attnfix is not usable here: {asked.stderr.strip().rpartition(os.linesep)[2]}")
    return Path(os.environ.get("ATTNFIX_GPU_OUT", "e2e-out")).resolve()


@pytest.fixture
def needs() -> Callable[..., None]:
    """`needs(engine, fixes, gpus)` skips the test where `cases.why_not`."""

    def skip(*about: object) -> None:
        if reason := cases.why_not(*about):  # type: ignore[arg-type]
            pytest.skip(reason)

    return skip


@pytest.fixture
def holds(needs: Callable[..., None], out: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[Case], None]]:
    """`holds(case)` runs a case, keeps its figures, and fails with the checks that do not hold."""

    def check(case: Case) -> None:
        needs(case.engine, case.fixes, case.gpus)
        wrong = cases.tried(case, out, request.node.nodeid)
        assert not wrong, "\n".join(wrong)

    yield check
