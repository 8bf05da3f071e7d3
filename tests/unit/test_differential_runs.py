"""Long runs without an engine: what is left of a run that was killed, cases side by side, branches, the budget of shrinking."""

import json
import threading
from itertools import islice

import pytest

from tests.differential import run, shrink, space


def answered(steps=2):
    step = {"kinds": ["decode"], "metadata": "m", "outputs": []}
    return {"ended": "done", "steps": [step] * steps, "seconds": 0.1, "arcs": {"vllm/a.py": [[1, 2]]}, "armed": ["vllm.a"]}


class Sides:
    """Answers at once. at_once: the most cases that ever ran at a time. meeting: where each case waits for another one."""

    lock, now, at_once, asked = threading.Lock(), 0, 0, []
    meeting = None

    def __init__(self, *args):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def judge(self, case, **more):
        with self.lock:
            Sides.now += 1
            Sides.at_once = max(Sides.at_once, Sides.now)
            Sides.asked.append(more)
        if self.meeting:
            self.meeting.wait()
        with self.lock:
            Sides.now -= 1
        return run.judge.judge(answered(), answered()), answered(), answered()


@pytest.fixture
def cases(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "Sides", Sides)
    Sides.at_once, Sides.asked = 0, []
    path = tmp_path / "vllm-1.0.jsonl"

    def go(most, seed=1, say=lambda record: None, **more):
        return run.run("vllm", "1.0", seed=seed, most=most, until=float("inf"), say=say, path=path, **more)

    return path, go


def indexes(path):
    return sorted((one.seed, one.index) for one in run.records(path))


@pytest.mark.parametrize("cut", [1, 2, 40, -1])
def test_a_line_that_was_cut_off_is_run_again_and_loses_no_other(cases, cut):
    path, go = cases
    go(5)
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    path.write_bytes(whole[:cut] if cut < 0 else whole[: last + cut])
    made = go(7)
    assert [one.index for one in made] == ([5, 6] if cut < 0 else [4, 5, 6])
    assert indexes(path) == [(1, at) for at in range(7)]


def test_a_run_that_is_stopped_keeps_the_cases_that_had_begun(cases):
    path, go = cases

    def stop(record):
        if record.index == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(9, say=stop, jobs=3)
    before = indexes(path)
    assert {(1, at) for at in range(4)} <= set(before)
    go(9, jobs=3)
    go(4, seed=2)
    assert indexes(path) == [*((1, at) for at in range(9)), *((2, at) for at in range(4))]
    found = run.summary(path)
    assert found["configurations"] == 13 and found["steps"] == 26 and found["seeds"] == [1, 2]


def test_jobs_run_side_by_side_and_each_case_once(cases, monkeypatch):
    path, go = cases
    monkeypatch.setattr(Sides, "meeting", threading.Barrier(2, timeout=60))
    go(12, jobs=4)
    assert 2 <= Sides.at_once <= 4
    assert indexes(path) == [(1, at) for at in range(12)]


def test_shrinking_asks_no_case_twice_and_draws_nothing_impossible():
    drawn = space.space_of("vllm")
    for _, case in islice(space.cases("vllm", "1.0", 5), 20):
        seen = []
        wanted = {name: case["settings"][name] for name in ("attention-backend", "attention", "dtype")}

        def wrong(candidate, seen=seen, wanted=wanted):
            assert drawn.impossible(candidate["settings"]) is None
            seen.append(json.dumps(candidate, sort_keys=True))
            return space._plain(wanted) == {name: candidate["settings"][name] for name in wanted}

        shrink.shrink(case, wrong)
        assert len(set(seen)) == len(seen) < 150


def test_evidence_of_other_runs_is_left_alone():
    from tests.differential import __main__ as main

    one = {"engine": "vllm", "release": "0.33.0", "space": "now", "seeds": [5, 7]}
    rows: list[dict] = []
    assert main.put(rows, one) and rows == [one]
    further = {**one, "seeds": [5, 7, 9]}
    assert main.put(rows, further) and rows == [further]  # the same file of results, further on
    assert not main.put(rows, {**one, "seeds": [7, 11]}) and rows == [further]  # would count seed 7 twice
    for other in ({**one, "seeds": [11]}, {**one, "space": "of another day"}, {**one, "release": "0.33"}):
        assert main.put(rows, other) and rows[-1] == other
