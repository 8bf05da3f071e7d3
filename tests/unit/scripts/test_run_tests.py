"""`make test` says how long each of its parts took, beside what was recorded, and ends with the first stage that fails."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from scripts import run_tests

REPORT = """<testsuites><testsuite>
<testcase classname="tests.integration.test_slow" name="a" time="70.5"/>
<testcase classname="tests.integration.test_slow" name="b" time="50"/>
<testcase classname="tests.unit.test_quick" name="c" time="0.5"/></testsuite></testsuites>"""


@pytest.fixture
def run(monkeypatch, tmp_path, capfd):
    """`run(*options, stage={step: exit code})`: exit code and lines of a run whose steps are Python programs that end so."""
    report = tmp_path / "tests.xml"
    monkeypatch.setattr(run_tests, "_REPORT", report)
    monkeypatch.setattr(run_tests, "_RECORD", tmp_path / "seconds.json")

    def start(*options, **stages):
        write = f"open({str(report)!r}, 'w').write({REPORT!r}); print('a step ran')"
        programs = {
            stage: {name: ["-c", f"{write}; raise SystemExit({code})"] for name, code in steps.items()}
            for stage, steps in stages.items()
        }
        monkeypatch.setattr(run_tests, "stages", lambda: programs)
        code = run_tests.main(list(options))
        return code, capfd.readouterr().out.splitlines()

    return start


def shown(lines, heading):
    """The rows under a heading: [now, recorded, name]"""
    at = next(number for number, line in enumerate(lines) if heading in line)
    rows = []
    for line in lines[at + 1 :]:
        if " s  " not in line:
            break
        rows.append([part.strip() for part in line.replace(" s", "").split("  ") if part.strip()])
    return rows


def test_the_slowest_come_first_tests_by_file(run):
    code, lines = run(tests={"tests": 0}, robustness={"faults": 0, "crowd": 0})
    assert code == 0
    rows = shown(lines, "the slowest parts")
    assert rows[0] == ["120", "new", "tests/integration/test_slow.py"] and {row[-1] for row in rows[2:]} == {"faults", "crowd"}


def test_no_more_than_ten_are_shown(run):
    _, lines = run(robustness={f"part{number}": 0 for number in range(12)})
    assert len(shown(lines, "the slowest parts")) == 10


def test_each_stage_stands_beside_what_was_recorded(run, tmp_path):
    run("--record", tests={"tests": 0}, robustness={"faults": 0, "crowd": 0})
    recorded = json.loads((tmp_path / "seconds.json").read_text())
    assert recorded["tests/integration/test_slow.py"] == 120 and {"tests", "robustness", "faults", "crowd"} <= recorded.keys()
    (tmp_path / "seconds.json").write_text(json.dumps(recorded | {"tests": 77}))
    _, lines = run(tests={"tests": 0}, ledgers={"ledgers": 0})
    tests, ledgers = shown(lines, "each stage")
    assert tests[1] == "77" and ledgers[1] == "new" and "cores idle" in tests[2]


def test_a_run_that_fails_is_not_recorded(run, tmp_path):
    run("--record", tests={"tests": 1})
    assert not (tmp_path / "seconds.json").is_file()


def test_it_ends_with_the_first_stage_that_fails(run):
    code, lines = run(tests={"tests": 0}, ledgers={"ledgers": 3}, robustness={"faults": 0})
    assert code == 3 and "ledgers: failed, exit 3" in lines and not any("robustness" in line for line in shown(lines, "stage"))


def test_of_steps_side_by_side_one_that_fails_is_the_exit_code_and_all_that_ran_is_shown(run):
    code, lines = run(robustness={"faults": 0, "crowd": 5})
    assert code == 5 and "crowd: failed, exit 5" in lines and lines.count("a step ran") == 2


def test_every_part_of_robustness_is_a_step_of_its_own_and_one_that_counts_seconds_runs_alone(monkeypatch):
    monkeypatch.setattr(run_tests, "PARTS", ("faults", "parsers", "cost", "crowd"))
    stages = run_tests.stages()
    assert stages["robustness"]["faults"] == ["-m", "tests.robustness", "--quick", "--part", "faults"]
    assert [*stages["robustness"]] == ["faults", "crowd"] and [*stages["robustness: parsers"]] == ["parsers"]
    assert all(find_spec(command[1]) for steps in stages.values() for command in steps.values())
