"""`scripts.serve.served`: which checks of a release that serves do not hold, and what the page says of it."""

from __future__ import annotations

import argparse
import copy
import json

import pytest

from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import FIXES
from scripts.evidence import summaries
from scripts.pages import gpu_runs
from scripts.serve import e2e, served
from scripts.serve.e2e import PATCHED, STOCK

RELEASE = "0.25.1"
NEEDED = [
    fix.id for fix in FIXES if fix.engine == "vllm" and fix.default and ledger.load(fix).verdict(RELEASE) == ledger.AFFECTED
]
LEFT_ALONE = next(fix.id for fix in FIXES if fix.engine == "vllm" and ledger.load(fix).verdict(RELEASE) == ledger.NOT_AFFECTED)


def seen(difference: float) -> dict:
    return {"difference": difference, "in_common": 20, "equal_tokens": 8}


def row(state: str, corrections: int = 0) -> dict:
    return {"state": state, "reason": "why", "code": "code", "calls": 9, "corrections": corrections}


@pytest.fixture
def sides():
    fixes = {fix: row("pending") for fix in NEEDED} | {NEEDED[0]: row("installed")}
    moved = {"cold and cached": seen(0.02), "cold and together": seen(0.03)}
    beside = {f"{how}, and stock": seen(0.01) for how in ("cold", "cached", "together")}
    return {
        STOCK: {"processes": [], "compared": dict(moved)},
        PATCHED: {"processes": [{"process": 1, "alive": True, "others": {}, "fixes": fixes}], "compared": moved | beside},
    }


def fixes_of(sides):
    return sides[PATCHED]["processes"][0]["fixes"]


def ended(said):
    return {"ended": "start: it ended", "said": said, "processes": []}


def told(sides):
    return served.failures("vllm", RELEASE, "mla", sides)


def test_a_release_that_answers_as_stock_and_is_patched_as_the_ledgers_say_has_no_failure(sides):
    assert told(sides) == []


def test_a_model_that_stock_does_not_serve_is_no_failure(sides):
    assert told({STOCK: ended("no such model"), PATCHED: ended("no such model")}) == []
    (sentence,) = told({**sides, PATCHED: ended("ValueError: x")})
    assert sentence == "patched did not start: ValueError: x"
    (sentence,) = told({PATCHED: ended("ValueError: x")})
    assert sentence == "did not start, and stock was not tried: ValueError: x"


@pytest.mark.parametrize("served_beside, wrong", [(False, ["no model was served: no such module"]), (True, [])])
def test_a_run_in_which_nothing_is_served_fails(sides, served_beside, wrong, monkeypatch, tmp_path):
    neither = {STOCK: ended("no such module"), PATCHED: ended("no such module")}
    found = {"mla": neither, "dense": sides if served_beside else neither}
    monkeypatch.setattr(served, "_one", lambda engine, kind, *rest: {"sides": copy.deepcopy(found[kind])})
    monkeypatch.setattr(e2e, "machine", lambda engine: {"release": RELEASE})
    assert served.run("vllm", ["mla", "dense"], tmp_path, tmp_path, False)[2] == wrong


def test_each_check_fails_by_itself(sides):
    changes = {
        "is failed: why": lambda at: fixes_of(at).update({NEEDED[1]: row("failed")}),
        f"needed by the ledger are {NEEDED[1]}; no process names them": lambda at: fixes_of(at).pop(NEEDED[1]),
        f"{LEFT_ALONE} stands": lambda at: fixes_of(at).update({LEFT_ALONE: row("installed")}),
        "otherwise than stock, by 0.2": lambda at: at[PATCHED]["compared"].update({"cold, and stock": seen(0.2)}),
        "cached moves an answer by 0.3, which is above 0.1": lambda at: at[PATCHED]["compared"].update(
            {"cold and cached": seen(0.3)}
        ),
        "stock: attnfix was active": lambda at: at[STOCK].update(processes=at[PATCHED]["processes"]),
    }
    for sentence, change in changes.items():
        changed = copy.deepcopy(sides)
        change(changed)
        (wrong,) = told(changed)
        assert sentence in wrong


def test_a_fix_may_sleep_whose_module_no_process_imports(sides):
    del fixes_of(sides)[NEEDED[1]]
    sides[PATCHED]["processes"][0]["others"] = {"dormant": 1}
    assert told(sides) == []


def test_what_is_written_of_a_run_names_its_command(sides, tmp_path, monkeypatch):
    monkeypatch.setattr(e2e.sys, "argv", ["served.py"])
    options = argparse.Namespace(case="served", out=tmp_path)
    about = {"engine": "vllm", "release": RELEASE, "gpu": "NVIDIA H200", "torch": "2.11.0"}
    assert e2e.finish(options, about, {"models": {"mla": {"sides": sides}}}, [], ["mla: why"]) == 1
    (written,) = tmp_path.glob("*.json")
    case = json.loads(written.read_text())["cases"]["served mla"]
    assert (case["command"], case["failures"]) == ("python -m scripts.serve.served --case served --models mla", ["mla: why"])


def test_where_a_fix_corrected_stock_may_differ(sides):
    sides[PATCHED]["compared"]["cold, and stock"] = seen(1.5)
    fixes_of(sides)[NEEDED[0]] = row("effective", corrections=3)
    assert told(sides) == []


def test_patched_may_move_an_answer_as_far_as_stock_does(sides):
    for side in sides.values():
        side["compared"]["cold and together"] = seen(0.3)
    assert told(sides) == []
    del sides[STOCK]
    (sentence,) = told(sides)
    assert sentence == "patched: together moves an answer by 0.3, which is above 0.1"


def test_a_row_of_the_page(sides, monkeypatch):
    fixes_of(sides)[NEEDED[0]] = row("effective", corrections=3)
    ends = {STOCK: ended("ValueError: no such model: x"), PATCHED: ended("ValueError: no such model: x")}
    process = {"fixes": {NEEDED[1]: row("effective", 1)}}
    cases = {
        "served mla": {"sides": sides, "failures": ["mla: why"]},
        "served dense": {"sides": {PATCHED: sides[PATCHED]}, "failures": []},
        "served hybrid": {"sides": ends, "failures": []},
        "order": {"emulated": "a kernel", "sides": {STOCK: ends[STOCK], PATCHED: {**ends[PATCHED], "processes": [process]}}},
    }
    run = summaries.of({"engine": "vllm", "release": RELEASE, "gpu": "NVIDIA H200", "cases": cases}, "f.json", "abc")
    assert run["cases"] == {"order": {"stock": "the engine ended: ValueError: no such model: x", "emulated": True}
                            | {"attnfix": "the engine ended: ValueError: no such model: x"}}  # fmt: skip
    monkeypatch.setattr(gpu_runs, "_runs", lambda: [run | {"file": "f.json"}])
    assert gpu_runs.releases().splitlines()[2] == (
        f"| [vllm {RELEASE}](runs/f.json) | H200 | 0.03 → 0.03 | 0.03 | not asked | not served: ValueError | 1 "
        f"| `{NEEDED[0].partition('.')[2]}` | mla: why |"
    )
    assert gpu_runs.corrected(NEEDED[0]) == f"{RELEASE} (H200)"
    assert gpu_runs.corrected(NEEDED[1]) == ""  # a kernel was emulated
