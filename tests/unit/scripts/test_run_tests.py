"""`make test` says which of its parts are slow, and ends as the first step that fails."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from scripts import run_tests

REPORT = """<testsuites><testsuite>
<testcase classname="tests.integration.test_slow" name="a" time="70.5"/>
<testcase classname="tests.integration.test_slow" name="b" time="50"/>
<testcase classname="tests.unit.test_quick" name="c" time="0.5"/></testsuite></testsuites>"""


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """`run(**codes)`: exit code and lines of a run whose steps are Python programs that end so."""
    report = tmp_path / "tests.xml"

    def start(**codes):
        report.unlink(missing_ok=True)
        write = f"open({str(report)!r}, 'w').write({REPORT!r})"
        programs = {name: ["-c", f"{write}; raise SystemExit({code})"] for name, code in codes.items()}
        monkeypatch.setattr(run_tests, "steps", lambda: programs)
        return run_tests.main(), capsys.readouterr().out.splitlines()

    monkeypatch.setattr(run_tests, "_REPORT", report)
    return start


def test_the_slowest_come_first_tests_by_file(run):
    code, (first, *lines) = run(tests=0, ledgers=0)
    assert code == 0 and "the slowest parts" in first
    assert lines[0].split() == ["120", "s", "tests/integration/test_slow.py"] and len(lines) == 3


def test_no_more_than_ten_are_shown(run):
    _, lines = run(tests=0, **{f"part{number}": 0 for number in range(12)})
    assert len(lines) == 11


def test_it_ends_with_the_first_that_fails(run):
    code, lines = run(tests=0, ledgers=3, robustness=0)
    assert code == 3 and "ledgers: failed, exit 3" in lines and not any("robustness" in line for line in lines)


def test_every_part_of_robustness_is_a_step_of_its_own(monkeypatch):
    monkeypatch.setattr(run_tests, "PARTS", ("faults", "fuzz"))
    commands = run_tests.steps()
    assert commands["robustness: fuzz"] == ["-m", "tests.robustness", "--quick", "--part", "fuzz"] and len(commands) == 5
    assert all(find_spec(command[1]) for command in commands.values())
