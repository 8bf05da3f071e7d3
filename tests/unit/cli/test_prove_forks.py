"""Many proofs of `attnfix prove` run in forks of a warm Python, and some of them once more in fresh interpreters."""

from __future__ import annotations

from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from attnfix.cli import prove
from attnfix.patches.catalogue import FIXES
from attnfix.prove.verdict import PROVEN, UNPROVEN, Result

JOBS = [(fix, "1.0", None, None, None) for fix in FIXES[:41]]


@pytest.fixture
def ran(monkeypatch):
    """(fix ID, cold) of each proof, and `says`: what a proof gives, by whether it runs in fresh interpreters."""
    seen, forks = [], []

    @contextmanager
    def proofs():
        forks.append("begun")
        yield
        forks.append("ended")

    def proof(fix, release, root, site, edit, seed, gpu=False, cold=False, stock=None):
        seen.append((fix.id, cold, seed))
        error = ran.says(fix, cold)
        return Result(
            fix.id, fix.engine, release, PROVEN, "", stock_error=1.0, fixed_error=error, seed=7 if seed is None else seed
        )

    def run(jobs, **options):
        return [*prove._run(jobs, Namespace(**{"seed": None, "gpu": False, "cold": False, "json": False} | options))]

    ran = Namespace(seen=seen, forks=forks, run=run, says=lambda fix, cold: 1e-6)
    monkeypatch.setattr(prove.warm, "proofs", proofs)
    monkeypatch.setattr(prove, "_prove", proof)
    monkeypatch.setattr(prove, "_stock_sides", lambda jobs, seed, pool: {})
    return ran


def test_of_many_one_in_twenty_runs_again_with_its_seed_in_fresh_interpreters(ran, capsys):
    results = ran.run(JOBS)
    assert [result.fix for result in results] == [job[0].id for job in JOBS], "in their order"
    assert {result.verdict for result in results} == {PROVEN} and ran.forks == ["begun", "ended"]
    assert [seed for _, cold, seed in ran.seen if cold] == [7] * 3 and len(ran.seen) == len(JOBS) + 3
    assert capsys.readouterr().err.splitlines()[-1] == f"41 of 41: {JOBS[-1][0].id}: proven"


def test_a_seed_draws_the_same_again(ran):
    for _ in range(2):
        ran.run(JOBS, seed=3, json=True)
    again = [fix for fix, cold, _ in ran.seen if cold]
    assert sorted(again[:3]) == sorted(again[3:])


def test_a_fork_that_says_otherwise_proves_nothing(ran):
    ran.says = lambda fix, cold: 1.0 if cold else 1e-6
    wrong = [result for result in ran.run(JOBS) if result.verdict != PROVEN]
    assert len(wrong) == 3 and {(result.verdict, result.reason) for result in wrong} == {(UNPROVEN, prove._APART)}


@pytest.mark.parametrize("jobs, options", [(JOBS[:2], {}), (JOBS, {"cold": True}), (JOBS, {"gpu": True})])
def test_few_proofs_those_on_a_gpu_and_cold_ones_fork_nothing(ran, jobs, options):
    assert len(ran.run(jobs, **options)) == len(ran.seen) == len(jobs) and not ran.forks


def test_where_nothing_can_be_forked_fresh_interpreters_prove(ran, monkeypatch, capsys):
    @contextmanager
    def proofs():
        raise RuntimeError("python cannot be forked: its imports have started 2 threads")
        yield

    monkeypatch.setattr(prove.warm, "proofs", proofs)
    assert len(ran.run(JOBS)) == len(ran.seen) == len(JOBS)
    assert "cannot be forked: its imports have started 2 threads; each proof starts two fresh ones" in capsys.readouterr().err


def test_stock_sides_share_an_import_of_the_engine_and_a_seed(monkeypatch):
    asked = []

    def run_sides(fixes, engine, seed, *, stock, site, run):
        asked.append((engine, site, len(fixes)))
        return {fix.id: {"of": (fix.id, seed)} for fix in fixes[1:]} | {"error": "of the whole"}

    monkeypatch.setattr(prove.runner, "run_sides", run_sides)
    monkeypatch.setattr(prove, "_nothing_to_run", lambda fix, *_: "nothing" if fix is FIXES[1] else None)
    jobs = [*JOBS[:9], (FIXES[9], "1.0", None, None, "an edit")]
    with ThreadPoolExecutor(1) as pool:
        found = prove._stock_sides(jobs, None, pool)
        answers = {job[0].id: (seed, answer()) for job, (seed, answer) in found.items()}
    judged = [job[0].id for job in JOBS[:9] if job[0] is not FIXES[1]]
    assert [*answers] == judged and asked == [("sglang", None, 6), ("sglang", None, 2)]
    for fix, (seed, answer) in answers.items():
        assert answer.get("of") == (fix, seed) or (fix in (judged[0], judged[6]) and answer["error"] == "of the whole")
