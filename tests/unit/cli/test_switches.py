"""Switches and allow-lists, read as the operator means them."""

from __future__ import annotations

import pytest

from attnfix.compat.arming import switches
from attnfix.compat.engines import ENGINES
from attnfix.patches.catalogue import FIXES

FIX = FIXES[0]


@pytest.mark.parametrize(
    "value, asked",
    [("0", False), ("off", False), (" 0 ", False), ("1", True), ("ON", True), ("auto", None), ("", None), ("maybe", None)],
)
def test_values(value, asked):
    assert switches.asked(FIX, {FIX.switch: value}) is asked


def test_unset_is_auto():
    assert switches.asked(FIX, {}) is None and not switches.killed({}) and not switches.strict({})


@pytest.mark.parametrize("value", ["0", "off", "false", "NO"])
def test_the_kill_switch(value):
    assert switches.killed({"ATTNFIX": value})
    assert not switches.killed({"ATTNFIX": "1"})


@pytest.mark.parametrize(
    "environ, says",
    [
        ({"ATTNFIX_SGLANG_ZERO_KV_ROW": "0"}, "did you mean ATTNFIX_SGLANG_ZERO_KV_ROWS?"),
        ({"ATTNFIX_STRICK": "1"}, "did you mean ATTNFIX_STRICT?"),
        ({"ATTNFIX_QQQQ": "1"}, "Known: ATTNFIX, "),
        ({"ATTNFIX_SGLANG_ZERO_KV_ROWS": "maybe"}, "use 0, 1 or auto"),
        ({"ATTNFIX": "nope"}, "use 0, 1 or auto"),
        ({"ATTNFIX_LOG": "verbose"}, "no logging level"),
    ],
)
def test_a_misspelling_is_said_with_what_is_meant(environ, says):
    (complaint,) = switches.complaints(FIXES, environ)
    assert says in complaint


def test_no_complaint_about_what_is_right():
    right = {"ATTNFIX": "1", "ATTNFIX_LOG": "debug", "ATTNFIX_RUN_DIR": "/x", FIX.switch: "auto", "ATTNFIXED": "?", "PATH": "x"}
    assert switches.complaints(FIXES, right) == []


@pytest.mark.parametrize(
    "engine, value, admitted",
    [
        ("vllm", None, True), ("vllm", "", False), ("vllm", "other", False), ("vllm", "a,attnfix", True),
        ("vllm", "a, attnfix", False),
        ("sglang", None, True), ("sglang", "", True), ("sglang", "other", False), ("sglang", "b, attnfix", True),
    ],
)  # fmt: skip
def test_allow_lists_as_each_engine_reads_them(engine, value, admitted):
    environ = {} if value is None else {ENGINES[engine].allow_list: value}
    assert ENGINES[engine].admits_us(environ) is admitted


def test_switches_are_distinct_and_follow_from_the_ids():
    assert len({fix.switch for fix in FIXES}) == len(FIXES)
    assert FIX.switch == "ATTNFIX_SGLANG_ZERO_KV_ROWS"


@pytest.mark.parametrize("former, switch", switches.RENAMED.items())
def test_a_former_name_is_read_and_told(former, switch):
    (fix,) = (fix for fix in FIXES if fix.switch == switch)
    assert [switches.asked(fix, {former: value}) for value in ("1", "0", "auto")] == [True, False, None]
    assert switches.asked(fix, {former: "1", switch: "0"}) is False
    assert switches.required(fix, {former: "1"}) and not switches.left_off(fix, {former: "1"})
    (told,) = switches.complaints(FIXES, {former: "1"})
    assert told == f"{former} is now called {switch}, and read until attnfix 1.1.0"
    (told,) = switches.complaints(FIXES, {former: "1", switch: "0"})
    assert told.endswith("which is set as well and counts")
    assert switches.complaints(FIXES, {former: "yse"})[-1] == f"{former}=yse is not read; use 0, 1 or auto"
