"""pytest's plugin in an engine's test run: packages that are not here are stubbed, results are written as JSON at the end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from attnfix.prove import stubs

stubs.install(os.environ["ENGINE_TESTS"])
_tests: dict[str, list[str]] = {}


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "call" or (report.outcome != "passed" and report.nodeid not in _tests):
        outcome = "error" if report.when != "call" and report.failed else report.outcome
        crash = getattr(report.longrepr, "reprcrash", None)
        _tests[report.nodeid] = [outcome, crash.message.split("\n")[0] if crash else ""]


def pytest_collectreport(report: Any) -> None:
    if report.outcome != "passed":
        outcome = "error" if report.failed else report.outcome
        _tests[report.nodeid] = [outcome, str(report.longrepr).strip().rpartition("\n")[2]]


def pytest_sessionfinish() -> None:
    import attnfix

    stood = [row["fix"] for row in attnfix.status() if row["state"] in ("installed", "effective")]
    Path(os.environ["ENGINE_TESTS_OUT"]).write_text(json.dumps({"tests": _tests, "fixes": stood}))
