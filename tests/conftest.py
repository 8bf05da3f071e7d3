"""Shared fixtures: the built wheel, and virtual environments that hold it beside a real engine release."""

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
    terminalreporter.write_line(f"of slow tests, drawn cases ran: {again}")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this tree, built once."""
    from tests.support import environments

    return environments.build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def engine_python(wheel, tmp_path_factory):
    """`engine_python(engine, release) -> Environment`: a virtual environment with the wheel and that release installed."""
    from tests.support import environments

    made: dict[tuple[str, str], environments.Environment] = {}

    def get(engine: str, release: str) -> environments.Environment:
        if (engine, release) not in made:
            folder = tmp_path_factory.mktemp(f"{engine}-{release}")
            made[engine, release] = environments.make(folder, wheel, engine, release)
        return made[engine, release]

    return get


@pytest.fixture(scope="session")
def engine_fork(wheel, tmp_path_factory):
    """`engine_fork(engine, release) -> Environment`: the same, in forks of a Python that has imported torch and no engine."""
    from attnfix.compat.releases import fetch
    from attnfix.prove.warm import Warm
    from tests.support import environments

    environment = environments.bare(tmp_path_factory.mktemp("warm") / "env")
    environments.install(environment, wheel)
    with Warm(environment.python, environment.variables()) as parent:
        yield lambda engine, release: environments.Forked(environment.folder, engine, parent, str(fetch.fetch(engine, release)))
