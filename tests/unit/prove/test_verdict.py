"""What a proof may be called: every way in which the two sides can fail to prove anything."""

from __future__ import annotations

import copy
import math

import pytest

from attnfix.compat.gate.judge import Verdict
from attnfix.patches.lab.proof import Observation
from attnfix.prove import side
from attnfix.prove.verdict import FAILED, LEFT_ALONE, PROVEN, UNPROVEN, judge_proof, judge_unknown_edit

AFFECTED = Verdict("affected", "files of 1.0", "1.0")
STOCK = {
    "hook_installed": True, "kernel": "emulated", "untouched": True, "sabotages": {}, "fired": 0, "control_fired": 0,
    "main": {"error": 19.0, "bits": "a"}, "control": {"error": 0.003, "bits": "c"}, "state": {"state": "dormant", "reason": ""},
}  # fmt: skip
FIXED = {
    **STOCK, "untouched": False, "main": {"error": 0.002, "bits": "b"}, "fired": 3,
    "state": {"state": "effective", "reason": "files of 1.0"}, "sabotages": {"nothing done": 19.0, "one row": None},
}  # fmt: skip


def judged_with(judged=AFFECTED, **changes):
    sides = {"stock": copy.deepcopy(STOCK), "fixed": copy.deepcopy(FIXED)}
    for path, value in changes.items():
        *keys, last = path.split("__")
        place = sides
        for key in keys:
            place = place[key]
        place[last] = value
    return judge_proof(judged, sides["stock"], sides["fixed"])


def test_a_path_that_neither_side_has_is_said():
    """Neither side counted anything then."""
    known = ("hook_installed", "kernel", "untouched", "sabotages", "state")
    absent = {name: STOCK[name] for name in known} | {"no_such_path": "gone"}
    verdict, reason = judge_proof(AFFECTED, absent, absent)
    assert verdict == FAILED and "not there" in reason


def test_red_to_green_is_proven():
    assert judged_with()[0] == PROVEN
    assert judged_with(stock__main__error=None)[0] == PROVEN, "not finite is red"


@pytest.mark.parametrize("several", [list, iter])
def test_a_side_gives_the_error_of_each_case(several):
    cases = [Observation(0.5, "a"), Observation(math.inf, "b"), Observation(0.25, "c")]
    found = side._observed(lambda seed: several(cases), 0)
    assert (found["error"], found["cases"]) == (None, [0.5, None, 0.25])
    assert side._observed(lambda seed: several(cases), 0, limit=0.1)["cases"] == [0.5], "what comes behind it is not run"
    assert side._observed(lambda seed: cases[0], 0) == {"error": 0.5, "bits": "a", "cases": [0.5]}


def test_a_case_of_the_bug_that_is_right_on_stock_is_named():
    verdict, reason = judged_with(stock__main={"error": 19.0, "bits": "a", "cases": [19.0, 0.002, None, 0.03]})
    assert verdict == PROVEN and reason == "files of 1.0; 3 corrections; of 4 cases of the bug, right on stock: 1, 3"
    assert "stock" not in judged_with(stock__main={"error": 19.0, "bits": "a", "cases": [19.0, None]})[1]


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"stock__main__error": 0.002}, "proves nothing"),
        ({"stock__main__error": 0.03}, "proves nothing"),
        ({"stock__untouched": False}, "own functions"),
        ({"fixed__state__state": "installed"}, "the fix is installed"),
        ({"fixed__state": None}, "the fix is None"),
        ({"fixed__fired": 0}, "no correction"),
        ({"fixed__main__error": 0.03}, "the fixed side is wrong"),
        ({"fixed__main__error": None}, "the fixed side is wrong"),
        ({"stock__control__error": 0.5}, "control is wrong"),
        ({"fixed__control__bits": "x"}, "does not touch"),
        ({"fixed__control_fired": 1}, "not touched"),
        ({"fixed__sabotages": {}}, "no sabotage"),
        ({"fixed__sabotages__weak": 0.003}, "went unnoticed (weak)"),
        ({"stock__no_such_path": "gone"}, "not there"),
    ],
)
def test_everything_else_on_an_affected_release_is_failed(changes, says):
    verdict, reason = judged_with(**changes)
    assert verdict == FAILED and says in reason


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"stock__error": "ImportError"}, "stock side did not run"),
        ({"fixed__error": "ImportError"}, "fixed side did not run"),
        ({"fixed__hook_installed": False}, "NOT ACTIVE"),
    ],
)
def test_what_did_not_run_is_unproven(changes, says):
    verdict, reason = judged_with(**changes)
    assert verdict == UNPROVEN and says in reason


def test_unknown_code_is_unproven_and_says_what_it_shows():
    unknown = Verdict("unknown", "f: not the code of any known release")
    assert judged_with(unknown)[0] == UNPROVEN and "shows the bug" in judged_with(unknown)[1]
    assert "does not show" in judged_with(unknown, stock__main__error=0.002)[1]


@pytest.mark.parametrize("kind", ["fixed upstream", "not affected"])
def test_healthy_code(kind):
    healthy = Verdict(kind, "files of 2.0", "2.0")
    green = {"stock__main__error": 0.002, "fixed__untouched": True}
    assert judged_with(healthy, **green)[0] == kind
    assert judged_with(healthy, fixed__untouched=True)[0] == FAILED, "red on a release that is called healthy"
    assert judged_with(healthy, **{**green, "fixed__untouched": False})[0] == FAILED
    assert judged_with(healthy, stock__no_such_path="none", fixed__untouched=True)[0] == kind


@pytest.mark.parametrize(
    "judged, stands, verdict",
    [
        (Verdict("unknown", "no such code"), {"untouched": True}, LEFT_ALONE),
        (Verdict("unknown", "no such code"), {"untouched": False}, FAILED),
        (AFFECTED, {"untouched": True}, FAILED),
        (Verdict("unknown", "no such code"), {"error": "no import"}, UNPROVEN),
    ],
)
def test_an_edit_that_must_not_be_recognised(judged, stands, verdict):
    from attnfix.patches.catalogue import FIXES

    result = judge_unknown_edit(FIXES[0], "1.0", judged, stands, "lookalike")
    assert (result.verdict, result.holds, result.edit) == (verdict, verdict == LEFT_ALONE, "lookalike")
