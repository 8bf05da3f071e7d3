"""Which cases of slow tests run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.support import drawn


def case(test, number, release=None, mark=None):
    found = SimpleNamespace(args=[mark]) if mark else None
    callspec = SimpleNamespace(params={"release": release, "number": number})
    return type("Case", (), {
        "nodeid": f"{test}[{number}]", "callspec": callspec, "get_closest_marker": lambda self, name: found,
    })()  # fmt: skip


@pytest.fixture(autouse=True)
def drawn_ones(monkeypatch):
    monkeypatch.delenv("TESTS_DRAWN", raising=False)
    monkeypatch.delenv("TESTS_FILES", raising=False)


def test_the_newest_release_runs_and_a_tenth_of_the_older_ones():
    cases = [
        case("one", f"{release}-{number}", release) for release in ("0.9.0", "0.10.0", "0.10.0.post1") for number in range(8)
    ]
    left = drawn.left_out(cases)
    ran = [at.callspec.params["release"] for at in cases if at not in left]
    assert ran.count("0.10.0.post1") == 8 and len(ran) == 8 + 2


def test_of_a_marked_test_so_many_run_and_of_others_all():
    marked = [case("marked", number, mark=3) for number in range(9)]
    few = [case("few", number, mark=3) for number in range(2)]
    others = [case("others", number, release) for number, release in enumerate([None, "nightly", ("0.9", "0.10"), "0.33.0"])]
    left = drawn.left_out([*marked, *few, *others])
    assert len(left) == 6 and left < set(marked)


def test_a_seed_draws_the_same_and_every_case_can_be_asked_for(monkeypatch):
    cases = [case("one", number, "0.1" if number else "0.2") for number in range(200)]
    first = drawn.left_out(cases)
    assert drawn.left_out(cases) == first and len(first) == 179
    monkeypatch.setattr(drawn, "SEED", "another")
    assert drawn.left_out(cases) != first
    monkeypatch.setenv("TESTS_DRAWN", "all")
    assert not drawn.left_out(cases)


def test_a_tenth_of_any_list_is_drawn_by_the_seed(monkeypatch):
    some = drawn.tenth(range(37), "name")
    assert len(some) == 4 and some == drawn.tenth(range(37), "name") != drawn.tenth(range(37), "other")
    monkeypatch.setenv("TESTS_DRAWN", "all")
    assert drawn.tenth(range(37), "name") == [*range(37)]


def test_a_third_of_the_slow_files_runs_and_those_that_the_last_commits_touched():
    slow = [f"tests/{room}/test_{number}.py" for room in ("fixes/vllm", "integration") for number in range(30)]
    fast = ["tests/unit/test_1.py", "tests/gpu/test_1.py"]
    left = drawn.files_left_out([*slow, *fast], [])
    assert len(left) == 40 and left < set(slow)
    touched = [
        "patches/vllm/17/wrap.py",
        "tests/integration/test_23.py",
        "patches/sglang/19/wrap.py",
        "patches/vllm/index.json",
    ]
    left = drawn.files_left_out(slow, touched)
    assert not left & {"tests/fixes/vllm/test_17.py", "tests/integration/test_23.py"} and 38 <= len(left) <= 40


def test_files_are_drawn_where_that_is_asked_for(monkeypatch):
    cases = [case(f"tests/integration/test_{number}.py::test", 0) for number in range(9)]
    monkeypatch.setattr(drawn, "changed", list)
    assert not drawn.left_out(cases)
    monkeypatch.setenv("TESTS_FILES", "third")
    assert len(drawn.left_out(cases)) == 6
    monkeypatch.setenv("TESTS_DRAWN", "all")
    assert not drawn.left_out(cases)
