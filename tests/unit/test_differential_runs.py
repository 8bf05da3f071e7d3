"""Long runs without an engine: what is left of a run that was killed, cases side by side, branches, the budget of shrinking."""

import json
import threading
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import pytest

from tests.differential import branches, recall, run, shrink, space


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


def test_branches_add_up_over_runs_and_are_asked_of_the_patched_side_alone(cases):
    path, go = cases
    go(2, branches=True)
    go(3, branches=True)
    assert Sides.asked == [{"branches": True}] * 3 and "branches" in run._PATCHED
    total = branches.Total(branches.file_of(path))
    assert total.cases == 3 and total._arcs == {"vllm/a.py": {(1, 2)}} and total._armed == {"vllm.a"}


SOURCE = '''
class Builder:
    """It builds."""

    def build(self, long):
        """Entered."""
        if long:
            return 1
        return 2

    def unbuild(self):
        return 3

    def abstract(self):
        raise NotImplementedError


class Other:
    def elsewhere(self):
        return 4
'''


def test_the_branches_of_a_class_that_was_entered_are_counted(tmp_path, monkeypatch):
    engine = tmp_path / "vllm"
    source = engine / "v1" / "attention" / "backends" / "a.py"
    source.parent.mkdir(parents=True)
    source.write_text(SOURCE)
    namespace = {}
    exec(compile(SOURCE, str(source), "exec"), namespace)
    name = "vllm/v1/attention/backends/a.py"

    def entered(*calls):
        with branches.Measured("vllm", str(tmp_path)) as measured:
            for long in calls:
                namespace["Builder"]().build(long)
        return measured.arcs

    total = branches.Total(tmp_path / "vllm-1.0.branches.json")
    total.add(entered(True), [])
    first = total.summary("vllm", tmp_path)["files"][name]
    assert first == {"entered": 1, "branches": 2, "of": {"Builder": [1, 2]}, "never": ["Builder.unbuild"]}
    total.save()
    again = branches.Total(tmp_path / "vllm-1.0.branches.json")
    again.add(entered(False), [])
    assert again.summary("vllm", tmp_path)["files"][name]["entered"] == 2


def recorded(index, verdict, **corrections):
    return run.Record(index, 7, "", verdict, "", "", False, {}, 3, [], corrections, [], [1.0, 2.0])


def test_how_soon_a_bug_was_seen_is_counted_and_written_once_for_a_run(tmp_path):
    every = [
        recorded(2, "corrected", fix=1, other=1),
        recorded(0, "refused"),
        recorded(1, "ok", fix=2),
        recorded(3, "missed", fix=1),
    ]
    found = recall.entry("1.0", 7, "drawn", every, "fix")
    assert (found["configurations"], found["refused"], found["seconds"], found["seen"]) == (3, 1, 9, True)
    unseen = recall.entry("1.0", 7, "drawn", every[1:], "fix")
    assert (unseen["configurations"], unseen["seen"], unseen["corrected something in"]) == (3, False, 2)
    failing = replace(every[3], case={"steps": 3})
    for without, seen in (("corrected", True), ("missed", False)):
        fault = recall.entry("1.0", 7, "drawn", [*every[:3], failing], "fix", lambda case, kind=without: kind)
        assert (fault["configurations"], fault["seen"]) == (4, seen)

    file = tmp_path / "recall.json"
    file.write_text(json.dumps({"about": "", "vllm": {"fix": [{"release": "1.0", "how": "a case", "seen": True}]}}))
    for one in (unseen, found, {**found, "release": "2.0"}):
        recall.add(file, "vllm", "fix", one)
    whole = json.loads(file.read_text())
    assert whole["about"] == recall.ABOUT
    assert [(one["release"], one["how"], one["seen"]) for one in whole["vllm"]["fix"]] == [
        ("1.0", "a case", True),
        ("1.0", "drawn", True),
        ("2.0", "drawn", True),
    ]


def test_shrinking_keeps_within_its_budget_and_says_what_it_has():
    _, case = next(pair for pair in space.cases("vllm", "1.0", 3) if len(pair[1]["requests"]) > 3)
    seen, said = [], []

    def wrong(candidate):
        seen.append(candidate)
        return candidate["steps"] >= 3

    shrinking = shrink.Shrinking(case, wrong, evaluations=4, say=said.append)
    best = shrinking.run()
    assert len(seen) == shrinking.evaluations == 4
    assert said and said[-1] == best and wrong(best) and json.dumps(best) != json.dumps(space._plain(case))


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


def test_a_port_that_is_taken_meanwhile_is_no_difference():
    taken, ok = {"ended": "raised", "error": {"message": "code: -98, name: EADDRINUSE"}}, {"ended": "ok"}
    asked, answers = [], [taken, ok, ok, ok]
    side = SimpleNamespace(ask=lambda case, **more: asked.append(more), answer=lambda: answers.pop(0))
    sides = run.Sides("sglang", "0.5.23")
    sides.stock, sides.patched = side, side
    assert sides.answers({}, only=["a fix"]) == (ok, ok) and asked == [{}, {"only": ["a fix"]}] * 2
