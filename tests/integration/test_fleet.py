"""`attnfix status --metrics`: replicas by the pages that they serve over HTTP. The pages are made by `prometheus_client` from
process records, as an engine's are; tests/integration/test_metrics_page.py scrapes those of real engines.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from attnfix import cli
from attnfix.cli import fleet
from attnfix.compat.status import fix_state
from attnfix.compat.status.recorder import fixset_name
from tests.support.metrics_pages import FIX, OTHER, exposition, process
from tests.support.pages import Page

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def asked(capsys, monkeypatch):
    """`asked(*words)`: exit code, JSON and table of `attnfix status --metrics`."""
    monkeypatch.setenv("COLUMNS", "100")

    def ask(*words):
        code = cli.main(["status", "--json", "--metrics", *words])
        found = json.loads(capsys.readouterr().out)
        assert cli.main(["status", "--metrics", *words]) == code
        return code, found, capsys.readouterr().out

    return ask


def test_a_healthy_fleet(replica, asked):
    ranks = [process({FIX: "effective", OTHER: "not affected"}, corrections=n) for n in (3, 4)]
    pages = [replica(*ranks), replica(process({FIX: "installed", OTHER: "dormant"}))]
    code, found, table = asked(*pages)
    assert code == 0 and not found["missing"] and not found["warnings"]
    first, second = found["replicas"]
    assert first["fixset"] == second["fixset"] == fixset_name("0.2.0", [FIX])
    assert (first["processes"], first["engines"], first["attnfix"]) == (2, ["sglang 0.5.9"], "0.2.0")
    (row,) = (row for row in first["fixes"] if row["stands"])
    assert row["counters"] == {"calls": 7, "corrections": 7, "rows": 0}
    assert "zero-kv-rows 7" in table and max(map(len, table.splitlines())) <= 100
    assert f"{first['fixset'][:8]}: {FIX}" in table and table.count("fine") == 2


@pytest.mark.parametrize("state, code", [("conflict", 3), ("late", 3), ("failed", 3), ("off", 0), ("fixed upstream", 0)])
def test_a_replica_without_a_fix_that_it_needs(replica, asked, state, code):
    good, bad = replica(process({FIX: "installed"})), replica(process({FIX: "effective"}), process({FIX: state}))
    found_code, found, table = asked(good, bad)
    assert found_code == code
    assert [f"{FIX} is missing on http://{bad}/metrics: {state}"] * bool(code) == found["missing"]
    assert ("missing" in table) is bool(code)


@pytest.mark.parametrize("release, calls, code", [("0.5.9", 0, 3), ("0.5.23", 0, 0), ("0.5.9", 5, 0)])
def test_unknown_source_is_missing_where_the_bug_may_be(replica, asked, release, calls, code):
    """Not after the fix, nor where a fix that has been called leaves a kernel alone."""
    assert asked(replica(process({FIX: "unknown source"}, release=release, calls=calls)))[0] == code


def test_a_replica_that_lags_behind(replica, asked):
    new, old = replica(process({FIX: "installed"})), replica(process({OTHER: "installed"}, version="0.1.0"))
    same = replica(process({FIX: "effective"}, version="0.1.0", release="0.5.8"))
    code, found, table = asked(new, old, same)
    assert code == 3 and [each["verdict"] for each in found["replicas"]] == ["fine", "missing", "behind"]
    (sentence,) = found["missing"]
    assert sentence.startswith(f"{FIX} is missing on http://{old}/metrics: attnfix 0.1.0")
    assert "the replicas run attnfix 0.1.0 (2) and 0.2.0 (1)" in found["warnings"] and "behind" in table


def test_an_idle_replica_is_fine_and_one_without_attnfix_is_not(replica, asked):
    idle, without = replica(process({FIX: "dormant"})), replica()
    assert asked(idle)[0] == 0
    code, found, _ = asked(idle, without)
    assert code == 3 and [each["verdict"] for each in found["replicas"]] == ["fine", "no attnfix"]
    assert (
        f"http://{without}/metrics: its metrics page has no attnfix series: not installed there, or ATTNFIX=0"
        in found["missing"][0]
    )


def test_a_replica_whose_set_of_fixes_is_refused_is_missing(replica, asked):
    refused = process({FIX: "off", OTHER: "off"}, reason=fix_state.REFUSALS[0])
    code, found, _ = asked(bad := replica(refused, refused))
    assert code == 3 and found["missing"] == [f"http://{bad}/metrics: nothing is armed: {fix_state.REFUSALS[0]}"]


def test_replicas_that_disagree_are_named(replica, asked):
    _, found, _ = asked(replica(process({FIX: "installed"})), replica(process({FIX: "off"})))
    assert found["warnings"] == [f"replicas of sglang 0.5.9 disagree: {FIX} is installed on 1 of 2"]


def observing(state):
    told = process({FIX: state, OTHER: "off"})
    told["fixes"][0] |= {"observable": True, "observed": {"calls": 9, "needed": 4}}
    return told | {"observes": True}


@pytest.mark.parametrize("state", ["observed", "failed"])
def test_a_replica_that_observes_is_neither_missing_nor_fine(replica, asked, state):
    code, found, table = asked(replica(observing(state)), replica(process({FIX: "effective"})))
    assert code == 0 and not found["missing"] and not found["warnings"]
    first, second = found["replicas"]
    assert (first["verdict"], first["observing"], second["verdict"]) == ("observes", 1, "fine")
    assert first["fixset"] != second["fixset"] and not any(row["stands"] for row in first["fixes"])
    assert not any(value for row in first["fixes"] for value in row["counters"].values())
    assert "observes" in table


def test_a_server_of_which_some_processes_observe_is_told(replica, asked):
    _, found, _ = asked(replica(observing("observed"), process({FIX: "effective"})))
    (warning,) = found["warnings"]
    assert "1 of 2 of its processes observe, and the others correct" in warning


def test_one_that_cannot_be_asked_is_no_success(replica, asked):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        code, found, table = asked(replica(process({FIX: "installed"})), nobody, replica(500))
    assert code == 1 and [bool(each["error"]) for each in found["replicas"]] == [False, True, True]
    assert table.count("unreachable") == 2 and table.count("could not be asked") == 2


@pytest.mark.parametrize("page", ["", "\x00\x1b[31m" * 99, 'attnfix_fix_info{fix="[red]"} 1', "attnfix_calls_total{" * 999])
def test_a_strange_page_is_a_replica_without_attnfix(replica, asked, page):
    code, found, table = asked(replica(page))
    assert code == 3 and found["replicas"][0]["verdict"] == "no attnfix" and "\x1b" not in table


def test_the_page_of_the_docs_shows_what_is_printed(monkeypatch, capsys):
    states = {FIX: "effective", OTHER: "installed"}
    pages = {
        "http://replica-0:30000/metrics": [process({}), process(states, corrections=6100)],
        "http://replica-1:30000/metrics": [process({}), process(states | {OTHER: "failed"}, corrections=5400)],
        "http://replica-2:30000/metrics": [process({FIX: "effective"}, corrections=700, version="0.1.0")],
    }
    monkeypatch.setattr(fleet, "_page", lambda url: exposition(monkeypatch, *pages[url]))
    monkeypatch.setenv("COLUMNS", "100")
    words = ["replica-0:30000", "replica-1:30000", "replica-2:30000"]
    code = cli.main(["status", "--metrics", *words])
    lines = [f"$ attnfix status --metrics {' '.join(words)}; echo exit code $?", *capsys.readouterr().out.splitlines()]
    shown = "\n".join(line.rstrip() for line in (*lines, f"exit code {code}"))
    assert shown in [block.rstrip() for block in Page(DOCS / "fleets.md").blocks_in("console")], shown


def test_addresses_come_from_words_and_files(tmp_path, capsys):
    listed = tmp_path / "replicas.txt"
    listed.write_text("# production\nreplica-0:8000\n\nhttps://replica-1/metrics/  # another path\nreplica-0:8000\n")
    assert fleet.addresses([str(listed), "10.0.0.1:30000"]) == [
        "http://replica-0:8000/metrics", "https://replica-1/metrics/", "http://10.0.0.1:30000/metrics",
    ]  # fmt: skip
    for word in ("file:///etc/passwd", "ftp://x/metrics", "http://", "a b", "x:port", "no-such-file.txt"):
        assert cli.main(["status", "--metrics", word]) == 2
        assert "neither a file nor the address" in capsys.readouterr().err
    listed.write_text("# nobody yet\n")
    assert cli.main(["status", "--metrics", str(listed)]) == 2


def test_a_fleet_of_processes_that_run_a_real_release():
    """`make fleet`: pages that vLLM itself makes, over processes that run its code."""
    environment = {**os.environ, "COLUMNS": "100"}
    command = [sys.executable, "-m", "scripts.serve.fleet"]
    done = subprocess.run(command, cwd=DOCS.parent, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split()[1:4] for line in done.stdout.splitlines() if re.match(r" 127\.0\.0\.1:\d+ ", line)]
    assert rows == [["fine", "vllm", "0.25.1"], ["fine", "vllm", "0.25.1"], ["no", "attnfix", "-"]]
    assert "mla-context-order 4" in done.stdout and done.stdout.endswith("exit code 3\n")
    assert "disagree: vllm.mla-context-order is installed on 1 of 2" in done.stdout
