"""pytest's plugin in an engine's test run: packages that are not here are stubbed, results go to a file as JSON lines.

A line {"began": name} stands before each test, so that of a process that dies one knows which did it. Tests with a result in
the file are not run again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from attnfix.prove import stubs

stubs.install(os.environ["ENGINE_TESTS"])
_FILE = Path(os.environ["ENGINE_TESTS_OUT"])


def _say(**line: Any) -> None:
    with _FILE.open("a") as file:
        print(json.dumps(line), file=file)


def pytest_collection_modifyitems(items: list) -> None:
    lines = map(json.loads, _FILE.read_text().splitlines()) if _FILE.exists() else ()
    done = {line["name"] for line in lines if "name" in line}
    items[:] = [item for item in items if item.nodeid not in done]


def pytest_runtest_logstart(nodeid: str) -> None:
    _say(began=nodeid)


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "call" or report.outcome != "passed":
        outcome = "error" if report.when != "call" and report.failed else report.outcome
        crash = getattr(report.longrepr, "reprcrash", None)
        _say(name=report.nodeid, result=[outcome, crash.message.split("\n")[0] if crash else ""])


def pytest_collectreport(report: Any) -> None:
    if report.outcome != "passed":
        outcome = "error" if report.failed else report.outcome
        _say(name=report.nodeid, result=[outcome, str(report.longrepr).strip().rpartition("\n")[2]])


def pytest_sessionfinish() -> None:
    import attnfix

    _say(fixes=[row["fix"] for row in attnfix.status() if row["state"] in ("installed", "effective")])
