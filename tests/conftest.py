"""Shared fixtures: the built wheels, and virtual environments that hold it beside a real engine release."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support import drawn

os.environ.pop("COLUMNS", None)  # of the terminal that runs the tests: tables would be as wide as it
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has what it runs in the background ignore it, children too


def pytest_configure(config):
    config.addinivalue_line("markers", "drawn(number): so many of its cases run, drawn; see tests/support/drawn.py")


def pytest_collection_modifyitems(config, items):
    if left := drawn.left_out(items):
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def pytest_terminal_summary(terminalreporter):
    again = f"TESTS_SEED={drawn.SEED} draws them again, TESTS_DRAWN=all runs every one"
    files = "one file in three, of it " if os.environ.get("TESTS_FILES") == "third" else ""
    terminalreporter.write_line(f"of slow tests, {files}drawn cases ran: {again}")


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> tuple[Path, Path]:
    """The wheels of this tree, `attnfix` and `attnfix-prove`, built once."""
    from tests.support import environments

    return environments.build_wheels(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="session")
def wheel(wheels) -> Path:
    """That of `attnfix`."""
    return wheels[0]


@pytest.fixture(scope="session")
def engine_python(wheels, tmp_path_factory):
    """`engine_python(engine, release) -> Environment`: a virtual environment with both wheels and that release installed."""
    from tests.support import environments

    made: dict[tuple[str, str], environments.Environment] = {}

    def get(engine: str, release: str) -> environments.Environment:
        if (engine, release) not in made:
            folder = tmp_path_factory.mktemp(f"{engine}-{release}")
            made[engine, release] = environments.make(folder, wheels, engine, release)
        return made[engine, release]

    return get


@pytest.fixture(scope="session")
def engine_fork(wheels, tmp_path_factory):
    """`engine_fork(engine, release) -> Environment`: the same, in forks of a Python that has imported torch and no engine."""
    from attnfix.compat.releases import fetch
    from attnfix.prove.warm import Warm
    from tests.support import environments

    environment = environments.bare(tmp_path_factory.mktemp("warm") / "env")
    environments.install(environment, *wheels)
    with Warm(environment.python, environment.variables()) as parent:
        yield lambda engine, release: environments.Forked(environment.folder, engine, parent, str(fetch.fetch(engine, release)))
