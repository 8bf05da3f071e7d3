"""Switches and allow-lists, read as the operator means them."""

from __future__ import annotations

import json

import pytest

from attnfix.bootstrap import process
from attnfix.cli import bug_report
from attnfix.compat.arming import switches
from attnfix.compat.engines import ENGINES
from attnfix.compat.status import recorder
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
        ({"ATTNFIX_WWWWWWWWWWWWWWWWWWWW": "1"}, "names the switch of a fix"),
        ({"ATTNFIX_SGLANG_ZERO_KV_ROWS": "maybe"}, "use 0, 1 or auto"),
        ({"ATTNFIX": "nope"}, "use 0, 1, auto or observe"),
        ({"ATTNFIX_SGLANG_ZERO_KV_ROWS": "observe"}, "use 0, 1 or auto"),
        ({"ATTNFIX_LOG": "verbose"}, "no logging level"),
    ],
)
def test_a_misspelling_is_said_with_what_is_meant(environ, says):
    (complaint,) = switches.complaints(FIXES, environ)
    assert says in complaint


def test_no_complaint_about_what_is_right():
    right = {"ATTNFIX": "1", "ATTNFIX_LOG": "debug", "ATTNFIX_RUN_DIR": "/x", FIX.switch: "auto", "ATTNFIXED": "?", "PATH": "x"}
    assert switches.complaints(FIXES, right) == []
    assert switches.complaints(FIXES, {"ATTNFIX": "Observe "}) == []


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


ON, OFF = (next(fix for fix in FIXES if fix.default is default) for default in (True, False))


@pytest.mark.parametrize(
    "environ, on",
    [
        ({}, [ON.id]),
        ({"ATTNFIX_ONLY": OFF.id}, [OFF.id]),
        ({"ATTNFIX_ONLY": f" {OFF.id} ,, {ON.id}"}, [ON.id, OFF.id]),
        ({"ATTNFIX_ONLY": " "}, []),
        ({"ATTNFIX_ONLY": ON.id, OFF.switch: "1"}, [ON.id]),
    ],
)
def test_only_what_is_named_is_on(environ, on):
    assert [fix.id for fix in (ON, OFF) if not switches.left_off(fix, environ)] == on
    assert switches.refused(FIXES, environ) is None


def test_a_switch_of_1_of_a_fix_that_is_not_named_requires_nothing_and_is_told():
    environ = {"ATTNFIX_ONLY": ON.id, OFF.switch: "1", ON.switch: "1"}
    assert switches.required(ON, environ) and not switches.required(OFF, environ)
    (told,) = switches.complaints(FIXES, environ)
    assert told == f"{OFF.switch}=1 does not turn {OFF.id} on, which is not in ATTNFIX_ONLY"


@pytest.mark.parametrize(
    "named, detail",
    [
        ("vllm.mla-context-oder", "vllm.mla-context-oder is unknown; did you mean vllm.mla-context-order?"),
        ("mla-context-order", "mla-context-order is unknown; did you mean vllm.mla-context-order?"),
        ("sglang.fa3-context-wall", "sglang.fa3-context-wall is now called sglang.fa3-context-limit"),
        ("?" * 500, f"{'?' * 80} is unknown; `attnfix list` shows the ids"),
    ],
)
def test_an_id_that_no_fix_has_is_refused(named, detail):
    refusal = switches.refused(FIXES, {"ATTNFIX_ONLY": f"{ON.id},{named}"})
    assert refusal == (switches.UNKNOWN_ID, detail)


@pytest.mark.parametrize("other", [{OFF.switch: "1"}, {"ATTNFIX_ONLY": ON.id}])
def test_another_set_than_the_pinned_one_is_refused(other, monkeypatch):
    pin = {"ATTNFIX_FIXSET": switches.fixset_on(FIXES, {})}
    assert switches.refused(FIXES, pin) is None
    assert switches.refused([*FIXES, *FIXES], {"ATTNFIX_FIXSET": f" {pin['ATTNFIX_FIXSET'].upper()} "}) is None
    assert switches.refused(FIXES, {**pin, ON.switch: "0"}) is None, "a fix can always be switched off"
    assert switches.refused(FIXES, {**pin, **other}).reason == switches.OTHER_SET
    assert switches.refused(FIXES[1:], pin).reason == switches.OTHER_SET
    assert "it is blank" in switches.refused(FIXES, {"ATTNFIX_FIXSET": ""}).detail
    monkeypatch.setattr(recorder, "own_version", lambda: "another")
    assert switches.refused(FIXES, pin).reason == switches.OTHER_SET


def test_fixes_are_asked_for_no_further_than_a_restriction_takes():
    def fixes():
        yield ON
        raise AssertionError("asked for another engine's")

    assert switches.refused(fixes(), {}) is switches.refused(fixes(), {"ATTNFIX_ONLY": ON.id}) is None


def test_a_report_says_of_a_restriction_no_more_than_that_it_is_not_read(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTNFIX_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("ATTNFIX_ONLY", "SECRET")
    monkeypatch.setenv("ATTNFIX_FIXSET", "0")
    told = bug_report.bundle()
    assert told["switches"]["ATTNFIX_ONLY"] == "(not read)" and "SECRET" not in json.dumps(told)


def test_a_serving_process_and_the_command_line_name_one_set():
    assert switches.fixset_on(process._every_fix(), {}) == switches.fixset_on(FIXES, {})
