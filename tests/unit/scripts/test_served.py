"""`scripts.serve.served`: which checks of a release that serves do not hold, and what the page says of it."""

from __future__ import annotations

import copy

import pytest

from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import FIXES
from scripts.pages import served_table
from scripts.serve import served
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
    compared = {"cold and cached": seen(0.02), "cold, and stock": seen(0.0), "cached, and stock": seen(0.01)}
    return {
        STOCK: {"processes": [], "compared": {"cold and cached": seen(0.02)}},
        PATCHED: {"processes": [{"process": 1, "alive": True, "fixes": fixes}], "compared": compared},
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


def test_each_check_fails_by_itself(sides):
    changes = {
        "is failed: why": lambda at: fixes_of(at).update({NEEDED[1]: row("failed")}),
        f"{NEEDED[1]} is needed by the ledger, and no process names it": lambda at: fixes_of(at).pop(NEEDED[1]),
        f"{LEFT_ALONE} stands": lambda at: fixes_of(at).update({LEFT_ALONE: row("installed")}),
        "otherwise than stock, by 0.2": lambda at: at[PATCHED]["compared"].update({"cold, and stock": seen(0.2)}),
        "stock: attnfix was active": lambda at: at[STOCK].update(processes=at[PATCHED]["processes"]),
    }
    for sentence, change in changes.items():
        changed = copy.deepcopy(sides)
        change(changed)
        (wrong,) = told(changed)
        assert sentence in wrong


def test_where_a_fix_corrected_stock_may_differ(sides):
    sides[PATCHED]["compared"]["cold, and stock"] = seen(1.5)
    fixes_of(sides)[NEEDED[0]] = row("effective", corrections=3)
    assert told(sides) == []


def test_the_page_says_what_stands_and_what_corrected(sides):
    fixes_of(sides)[NEEDED[0]] = row("effective", corrections=3)
    stock, patched = served_table._seen({"prompts": [100], "sides": sides})
    assert stock == "cached moves 0.02"
    assert patched == f"cached moves 0.02; 0.01 from stock, 1 fixes stand, corrected: {NEEDED[0]}"
    assert served_table._title("served mla") == "any release: mla, prompts cold and with their first half cached"
    assert served_table._place("order") < served_table._place("probe x") < served_table._place("served mla")


@pytest.mark.parametrize("engine", served.MODELS)
def test_every_model_can_be_written(engine, tmp_path):
    pytest.importorskip("torch")
    assert set(served.MODELS[engine]) == set(served.ROUNDING)
    make, _ = served.MODELS[engine]["dense"]
    assert (make(tmp_path) / "config.json").is_file()
