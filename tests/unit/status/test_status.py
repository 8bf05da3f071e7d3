"""What `attnfix status` makes of records: exit code, loud sentences, a view that fits 80 columns."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from attnfix import cli
from attnfix.cli import status, status_view
from attnfix.compat.arming import switches
from attnfix.patches.catalogue import FIXES

SGLANG = [fix.id for fix in FIXES if fix.engine == "sglang"]


def row(fix, state, reason="why", calls=0, code="abc"):
    counters = {"calls": calls, "corrections": calls, "rows": calls * 1000}
    return {"fix": fix, "state": state, "reason": reason, "code": code, "counters": counters}


def process(pid=1, states=None, **facts):
    """A running process in which every fix is dormant but those named."""
    rows = [row(fix, "dormant", "not loaded yet (normal)") for fix in SGLANG]
    rows = [(states or {}).get(each["fix"], each) for each in rows]
    rows = [row(SGLANG[i], each) if isinstance(each, str) else each for i, each in enumerate(rows)]
    plain = {"pid": pid, "started": 5, "host": "a-long-host-name.cluster.local", "role": "scheduler", "rank": f"TP{pid}",
             "engine": "sglang", "release": "0.5.9", "attnfix": "0.1.0", "fixset": "0123456789ab", "activated": pid,
             "alive": True, "fixes": rows}  # fmt: skip
    return plain | facts


def found(*processes, **facts):
    plain = {"attnfix": "0.1.0", "python": "/opt/venv/bin/python", "active": True, "reason": None, "records": "/tmp/r",
             "engines": [{"engine": "sglang", "release": "0.5.9", "location": "/opt/venv/sglang"}], "fixes": [],
             "processes": list(processes), "unrecorded": [], "only": None, "fixset_on": "0123456789ab", "refused": None,
             "observes": False, "warnings": status.disagreements(list(processes))}  # fmt: skip
    plain |= facts
    return {**plain, "missing": list(status.missing(plain))}


def text(found, width=80):
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(status_view.view(found, width))
    return console.export_text()


@pytest.mark.parametrize(
    "state, code",
    [
        ("dormant", 0), ("pending", 0), ("off", 0), ("not affected", 0), ("fixed upstream", 0), ("installed", 0),
        ("effective", 0), ("conflict", 3), ("late", 3), ("failed", 3),
    ],
)  # fmt: skip
def test_what_is_missing(state, code):
    told = found(process(1, {SGLANG[0]: state}))
    assert status.exit_code(told) == code
    assert any(SGLANG[0] in sentence and state in sentence for sentence in told["missing"]) is bool(code)
    assert status.exit_code(found(process(1, {SGLANG[0]: state}, alive=False))) == 0, "it has ended"


@pytest.mark.parametrize(
    "release, judged, code", [("0.5.9", None, 3), ("0.5.23", None, 0), (None, None, 3), ("0.5.9", "abc", 0)]
)
def test_unknown_source_is_missing_where_the_bug_may_be(release, judged, code):
    """Not after the fix; nor where the code is known and a kernel cannot be judged."""
    unknown = row("sglang.zero-kv-rows", "unknown source", code=judged)
    assert status.exit_code(found(process(1, {"sglang.zero-kv-rows": unknown}, release=release))) == code


def test_not_active_is_missing_where_an_engine_is_installed():
    reason = "attnfix.pth is not in a site folder"
    assert status.exit_code(found(active=False, reason=reason)) == 3
    assert status.exit_code(found(active=False, reason=reason, engines=[])) == 0
    assert status.exit_code(found(active=False, reason="ATTNFIX=0")) == 0, "switched off, not missing"
    assert "NOT ACTIVE" in text(found(active=False, reason=reason))


@pytest.mark.parametrize("state, code", [("restart needed", 3), ("no record", 3), ("starting", 0), ("off", 0), ("active", 0)])
def test_engine_processes_without_a_record(state, code):
    other = {"pid": 7, "started": 1, "engine": "sglang", "role": "server", "rank": None, "state": state, "reason": "why"}
    told = found(process(), unrecorded=[other])
    assert status.exit_code(told) == code
    assert "server (pid 7)" in text(told) and state in text(told)


def test_a_process_of_another_deployment_is_in_the_json_alone():
    other = {"pid": 7, "started": 1, "engine": "sglang", "role": "server", "rank": None, "state": "elsewhere", "reason": "why"}
    told = found(process(), unrecorded=[other])
    assert status.exit_code(told) == 0 and "pid 7" not in text(told)


def test_where_nothing_else_runs_the_folder_of_anothers_records_is_told():
    """It may be the server that is looked for, started with another TMPDIR."""
    other = {"pid": 7, "started": 1, "engine": "sglang", "role": "server", "rank": None, "state": "elsewhere",
             "reason": "its records are in /job/attnfix-0"}  # fmt: skip
    for processes in ((), (process(alive=False),)):
        told = found(*processes, unrecorded=[other])
        assert status.exit_code(told) == 0 and "server (pid 7)" in text(told) and "/job/attnfix-0" in text(told)
        code, why = status.readiness(told)
        assert code == 1 and "sglang server (pid 7): its records are in /job/attnfix-0" in why


@pytest.mark.parametrize(
    "one, other, says",
    [
        ({}, {}, None),
        ({SGLANG[0]: "installed"}, {SGLANG[0]: "effective"}, None),
        ({SGLANG[0]: "installed"}, {SGLANG[0]: "dormant"}, None),  # not loaded yet: healthy
        ({SGLANG[0]: "installed"}, {SGLANG[0]: "pending"}, None),
        ({SGLANG[0]: "installed"}, {SGLANG[0]: "off"}, "is installed in 1 of 2"),
        ({SGLANG[0]: "installed"}, {SGLANG[0]: "conflict"}, "is installed in 1 of 2"),
        ({SGLANG[0]: "installed"}, {SGLANG[0]: "fixed upstream"}, "is installed in 1 of 2"),  # another code under one version
        ({SGLANG[0]: "off"}, {SGLANG[0]: "conflict"}, None),
    ],
)
def test_ranks_that_disagree(one, other, says):
    told = status.disagreements([process(1, one), process(2, other, host="another container")])
    assert (len(told) == 1 and says in told[0] and SGLANG[0] in told[0]) if says else not told
    assert not status.disagreements([process(1, one), process(2, other, alive=False)])
    assert not status.disagreements([process(1, one), process(2, other, release="0.5.10")]), "another deployment"


def test_ranks_of_two_attnfix_releases_disagree():
    (told,) = status.disagreements([process(1), process(2, attnfix="0.2.0")])
    assert "attnfix 0.1.0 and 0.2.0" in told


def test_eighty_columns_hold_every_process_fix_state_and_count():
    states = ("effective", "installed", "conflict", "unknown source", "off", "late", "failed")
    named = {fix: row(fix, state, calls=8) for fix, state in zip(SGLANG, states)}
    shown = text(found(process(1, named), process(2, named), process(3, named, alive=False)))
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert all(sum(f"TP{pid} " in line for line in lines) >= 2 for pid in (1, 2, 3)), "a row in every piece of the table"
    assert "(ended)" in shown and all(each in shown for each in ("8 calls", "8 corrected", "8000 rows"))
    assert all(part in shown for name in named for part in name.partition(".")[2].split("-"))
    assert all(state in shown for state in states)


def test_only_relevant_fixes_have_a_column():
    healthy = {fix: "not affected" for fix in SGLANG} | {SGLANG[0]: "fixed upstream", SGLANG[1]: "installed"}
    shown = text(found(process(1, healthy), process(2, {SGLANG[2]: "failed"}, alive=False)), 160)
    assert SGLANG[1].partition(".")[2] in shown and SGLANG[0].partition(".")[2] not in shown
    server = process(3)  # has loaded no code, and so says nothing against the rank that has
    shown = text(found(process(1, healthy), server), 160)
    assert SGLANG[1].partition(".")[2] in shown and SGLANG[0].partition(".")[2] not in shown
    assert SGLANG[0].partition(".")[2] in text(found(server), 160), "nobody has"


def test_each_reason_once_with_the_processes_it_holds_for():
    same, mine = row(SGLANG[0], "off", "switched off here"), row(SGLANG[1], "failed", "boom")
    shown = text(found(process(1, {SGLANG[0]: same, SGLANG[1]: mine}), process(2, {SGLANG[0]: same})), 200)
    assert shown.count("switched off here") == shown.count("boom") == shown.count("not loaded yet (normal)") == 1
    assert f"boom: {SGLANG[1]} in scheduler TP1 (pid 1)" in shown
    (line,) = (line.strip() for line in shown.splitlines() if "switched off here" in line)
    assert line.endswith(f"switched off here: {SGLANG[0]}"), "it holds for all"


def test_a_torch_reference_is_said_with_its_reason():
    told = text(found(process(1, kernels={"merge": {"path": "reference", "reason": "no GPU"}, "other": {"path": "cuda"}})))
    assert "torch reference serves merge (no GPU)" in told and "other" not in told


def test_many_ended_processes_do_not_fill_the_screen():
    told = text(found(*(process(pid, alive=False) for pid in range(100, 130))), 400)  # one table, however many fixes
    assert told.count("(ended)") == 5 and "TP129" in told and "25 more" in told


def test_no_process_is_told_with_the_place_and_what_to_do(tmp_path):
    missing = tmp_path / "missing"
    shown = text(found(engines=[], records=str(missing)), 400)
    assert f"No process has left a record: {missing} does not exist" in shown and "ATTNFIX_RUN_DIR" in shown
    assert "No sglang or vLLM in this Python. Run attnfix in the engine's environment." in shown and "active" not in shown
    assert f"No process has left a record in {tmp_path}." in text(found(records=str(tmp_path)), 400)


def test_no_text_of_a_record_is_read_as_markup():
    told = text(found(process(1, {SGLANG[0]: row(SGLANG[0], "failed", "[bold]x[/bold]")}, rank="[red]")), 160)
    assert "[bold]x[/bold]" in told and "[red]" in told


def test_json_is_the_whole():
    assert json.loads(json.dumps(found(process())))["processes"][0]["fixset"] == "0123456789ab"


def other(state):
    return {"pid": 7, "started": 1, "engine": "sglang", "role": "server", "rank": None, "state": state, "reason": "why"}


@pytest.mark.parametrize(
    "told, code, says",
    [
        (found(process(1, {SGLANG[0]: "installed"}), process(2)), 0, "at work in 2 processes"),
        (found(process(1, {SGLANG[0]: "off"})), 0, "ready"),
        *((found(process(1, {SGLANG[0]: state})), 0, f"is missing in sglang scheduler TP1 (pid 1): {state}")
          for state in ("failed", "conflict", "late")),
        (found(process(1, {SGLANG[0]: "failed"}, alive=False)), 1, "no engine is running"),
        (found(), 1, "no engine is running"),
        (found(unrecorded=[other("starting")]), 1, "is starting"),
        (found(process(), unrecorded=[other("starting")]), 1, "is starting"),
        (found(unrecorded=[other("elsewhere")]), 1, "no engine is running"),
        (found(unrecorded=[other("restart needed")]), 3, "restart needed"),
        (found(unrecorded=[other("no record")]), 0, "ready, as far as can be told: no record of sglang server (pid 7): why"),
        (found(process(), unrecorded=[other("no record")]), 0, "at work in 1 process; no record of sglang server (pid 7): why"),
        (found(unrecorded=[other("active")]), 0, "ready: attnfix is at work in 1 process"),
        (found(process(), unrecorded=[other("active")]), 0, "ready: attnfix is at work in 2 processes"),
        (found(process(1, {SGLANG[0]: row(SGLANG[0], "off", switches.UNKNOWN_ID)})), 0, "ready: nothing is armed in sglang"),
        (found(unrecorded=[other("off")]), 0, "ready: attnfix is off in 1 process, by ATTNFIX=0"),
        (found(process(), unrecorded=[other("off")]), 0, "at work in 1 process; attnfix is off in 1 process, by ATTNFIX=0"),
        (found(active=False, reason="ATTNFIX=0", unrecorded=[other("off")]), 0, "ATTNFIX=0"),
        (found(active=False, reason="ATTNFIX=0"), 0, "ATTNFIX=0"),
        (found(active=False, reason="no .pth here"), 3, "NOT ACTIVE"),
    ],
)  # fmt: skip
def test_a_replica_is_ready_once_attnfix_is_at_work_in_it(told, code, says):
    """Whatever becomes of a fix: equal replicas with equal requests would all fail, and go out of service, at once."""
    assert status.readiness(told)[0] == code and says in status.readiness(told)[1]
    assert "in 0 process" not in status.readiness(told)[1]


def test_the_line_of_a_probe_has_an_end():
    told = found(*(process(pid, {SGLANG[0]: "failed"}) for pid in range(500)))
    assert len(told["missing"]) == 500 and "and 495 more" in status.readiness(told)[1] and len(status.readiness(told)[1]) < 600


def test_ready_is_one_line_and_takes_no_other_question(monkeypatch, capsys):
    monkeypatch.setattr(status, "collect", lambda expect: found(process(1, {SGLANG[0]: "late"})))
    assert cli.main(["status", "--ready"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert cli.main(["status", "--ready", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ready"] is True
    for words in (["--watch"], ["--metrics", "x:1"]):
        assert cli.main(["status", "--ready", *words]) == 2


def observing(pid=1, state="observed", looked=(40, 12)):
    """A process with ATTNFIX=observe: one fix that is observed, and one that cannot be."""
    seen = {**row(SGLANG[0], state), "observable": True, "observed": dict(zip(("calls", "needed"), looked))}
    blind = {**row(SGLANG[1], "off", "not observable: f has no look"), "observable": False}
    return process(pid, {SGLANG[0]: seen, SGLANG[1]: blind}, observes=True)


def test_a_process_that_observes_is_healthy_and_says_that_nothing_is_corrected():
    told = found(observing())
    assert status.exit_code(told) == 0 and not told["missing"]
    assert status.readiness(told) == (0, "ready: 1 process observing: nothing is corrected")
    assert status.readiness(found(observing(), process(2)))[1].startswith(
        "ready: attnfix is at work in 1 process; 1 process obs"
    )
    shown = text(told)
    for words in ("observed", "40 looked at", "12 needed it", "not observable", "nothing is corrected"):
        assert words in shown
    assert " 0 " not in shown and "corrected\n" not in shown
    assert "0 looked at" in text(found(observing(looked=(0, 0))))


def test_a_look_that_failed_is_a_warning_as_no_fix_is_to_stand():
    told = found(observing(state="failed"))
    assert status.exit_code(told) == 0
    assert status.unobserved(told["processes"]) == [f"{SGLANG[0]} is not observed in sglang scheduler TP1 (pid 1): failed"]


def test_a_rank_that_observes_beside_one_that_corrects_is_told():
    ranks = [observing(), process(2, {SGLANG[0]: "effective"})]
    assert f"{SGLANG[0]} is installed in 1 of 2" in status.disagreements(ranks)[0]


def test_a_restriction_is_one_line_and_a_refused_one_is_missing():
    assert "ATTNFIX_ONLY: nothing but sglang.a, sglang.b is on" in text(found(only=("sglang.a", "sglang.b")))
    assert "ATTNFIX_ONLY: nothing is on" in text(found(only=()))
    assert "ATTNFIX_ONLY" not in text(found())
    why = f"{switches.UNKNOWN_ID}, so nothing is armed: ATTNFIX_ONLY names no fix"
    refused = found(only=("sglang.gone",), refused=why)
    assert status.exit_code(refused) == 3 and "ATTNFIX_ONLY names no fix" in text(refused) and "is on" not in text(refused)
    assert why in " ".join(text(refused).split()) and "active" not in text(refused) and "FIXSET" not in text(refused)
    assert status.exit_code(found(refused="ATTNFIX_ONLY names no fix", active=False, reason="ATTNFIX=0")) == 0


def test_a_process_whose_restriction_was_refused_is_missing_whatever_this_environment_says():
    states = {fix: row(fix, "off", switches.UNKNOWN_ID) for fix in SGLANG[:3]}
    told = found(process(1, states))
    assert told["missing"] == [f"nothing is armed in sglang scheduler TP1 (pid 1): {switches.UNKNOWN_ID}"]
    assert found(process(1, states, alive=False))["missing"] == []


@pytest.mark.parametrize(
    "name, value, code",
    [
        ("ATTNFIX_ONLY", "sglang.gone", 3),
        ("ATTNFIX_FIXSET", "0123", 3),
        ("ATTNFIX_ONLY", SGLANG[0], 0),
        ("ATTNFIX_ONLY", "", 0),
    ],
)
def test_a_restriction_of_this_environment_is_collected(monkeypatch, tmp_path, name, value, code):
    monkeypatch.setattr(status, "hook_installed", lambda: True)
    monkeypatch.setenv("ATTNFIX_RUN_DIR", str(tmp_path))
    monkeypatch.setenv(name, value)
    told = status.collect(expect=False)
    assert bool(told["refused"]) is bool(code) and (told["refused"] in told["missing"]) is bool(code)
    assert told["fixset_on"] == switches.fixset_on(FIXES)
