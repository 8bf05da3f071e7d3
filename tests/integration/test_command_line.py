"""The command line as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from packaging.version import Version

from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import BY_ID, FIXES, known_bugs

FIX = {"sglang": "sglang.zero-kv-rows", "vllm": "vllm.empty-context-chunks"}


def attnfix(*arguments, **environment):
    import os

    kept = {k: v for k, v in os.environ.items() if not k.startswith("ATTNFIX") or k == "ATTNFIX_RUN_DIR"}
    variables = {**kept, **environment}
    return subprocess.run([sys.executable, "-m", "attnfix", *arguments], env=variables, capture_output=True, text=True)


@pytest.mark.parametrize(
    "engine, release, verdict",
    [
        ("sglang", "0.5.9", "affected"),
        ("sglang", "0.5.9+cu128", "affected"),
        ("sglang", "0.5.2", "not affected"),
        ("sglang", "0.5.23", "fixed upstream"),
        ("vllm", "0.11.0", "not affected"),
        ("vllm", "0.20.2", "affected"),
        ("vllm", "0.19.1", "not affected"),
        ("vllm", "0.33.0", "fixed upstream"),
    ],
)
def test_verdict_is_offline_and_quick(engine, release, verdict):
    start = time.perf_counter()
    done = attnfix("verdict", f"{engine}=={release}", "--json", HTTPS_PROXY="http://127.0.0.1:9", PIP_NO_INDEX="1")
    seconds = time.perf_counter() - start
    data = json.loads(done.stdout)
    assert (data["engine"], data["release"], done.returncode) == (engine, release, 0)
    rows = {row["fix"]: row["verdict"] for row in data["fixes"]}
    assert rows[FIX[engine]] == verdict and all(name.startswith(engine) for name in rows)
    assert all(set(row) == {"fix", "verdict", "fixed_in", "title", "default"} for row in data["fixes"])
    assert seconds < 10, "a loaded machine may be slow, but this imports no torch"
    times = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "attnfix", "verdict", f"{engine}=={release}"], capture_output=True, text=True
    ).stderr
    imported = {line.rpartition("|")[2].strip() for line in times.splitlines()}
    assert "attnfix.cli" in imported and imported.isdisjoint({"torch", "requests"})


def test_verdict_says_what_goes_wrong_and_counts_the_rest():
    said = attnfix("verdict", "vllm==0.25.1", COLUMNS="160").stdout
    books = {fix: ledger.load(fix).verdict("0.25.1") for fix in FIXES if fix.engine == "vllm"}
    rows = {line.split()[0]: line for line in said.splitlines() if line.startswith(" vllm.")}
    affected = {fix.id: fix for fix, verdict in books.items() if verdict == ledger.AFFECTED}
    known = {bug.id: bug for bug in known_bugs("vllm") if bug.in_release(Version("0.25.1"))}
    assert known and rows.keys() == affected.keys() | known.keys()
    assert all(bug.title in rows[bug.id] for bug in (*affected.values(), *known.values()))
    assert f"does not have the bugs of {len(books) - len(affected)} other fixes" in said


@pytest.mark.parametrize(
    "arguments, code, says",
    [
        (["verdict", "sglang==9.9.9"], 1, "was never judged; the newest that was is"),
        (["verdict", "vllm==0.22.99"], 1, "it may have the bug: attnfix does not reach it"),
        (["verdict", "sglang"], 2, "no sglang is installed here; name a release, as in sglang==0."),
        (["verdict", "sglang==x"], 2, "is not a version number"),
        (["verdict", "tgi==1.0"], 2, "known: sglang, vllm"),
        (
            ["prove", "--engine", "sglang==0.5.10.post1", "--fix", "sglang.xyzzy"],
            2,
            "is no fix and no known bug; `att",
        ),
        (["prove", "--engine", "sglang==0.5.10.post1", "--fix", "vllm.empty-context-chunks"], 2, "for sglang"),
        (["prove", "--engine", "sglang==9.9.9"], 1, "9.9.9"),
        (["prove", "--edit", "x"], 2, "--edit needs --engine"),
        (["prove", "--engine", "sglang==0.5.9", "--fix", "sglang.zero-kv-rows", "--edit", "x"], 2, "known: none"),
        (["explain", "sglang.xyzzy"], 2, "is no fix and no known bug; `att"),
        (["prove"], 1, "no engine is installed here"),
        (["no-such-command"], 2, "is no command; known: list"),
    ],
)
def test_bad_input_gets_one_clear_sentence(arguments, code, says):
    done = attnfix(*arguments)
    assert done.returncode == code, done.stderr
    assert says in done.stderr and "Traceback" not in done.stderr + done.stdout


def test_no_network_is_one_sentence(tmp_path):
    done = attnfix("prove", "--engine", "sglang==0.5.4", ATTNFIX_CACHE_DIR=str(tmp_path), PIP_INDEX_URL="http://127.0.0.1:9/simple",
                   PIP_EXTRA_INDEX_URL="", PIP_RETRIES="0")  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("attnfix:")]) == 1


def test_list_and_status_have_the_promised_shapes(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTNFIX_RUN_DIR", str(tmp_path))
    rows = json.loads(attnfix("list", "--json").stdout)["fixes"]
    assert [row["fix"] for row in rows] == list(BY_ID)
    status = json.loads(attnfix("status", "--json").stdout)
    assert {"attnfix", "active", "engines", "fixes", "processes"} <= set(status)
    assert status["active"] is True
    assert all({"fix", "state", "reason", "switch"} <= set(row) for row in status["fixes"])
    for command, says in (("list", "sglang.zero-kv-rows"), ("status", "No sglang or vLLM in this Python")):
        done = attnfix(command)
        assert done.returncode == 0 and says in done.stdout.replace("\n", "")


@pytest.mark.parametrize("fix", BY_ID)
def test_explain_says_all_there_is(fix):
    data = json.loads(attnfix("explain", fix, "--json").stdout)
    assert all(data[name] for name in ("symptom", "cause", "correction", "cost", "expect", "remove_when", "links", "hardware"))
    text = attnfix("explain", fix).stdout
    flat = " ".join(text.split())
    worst = data["worst_cost"]
    assert (f"{worst['tokens']:.3f} (" if worst else "tokens/s were not measured") in flat
    assert all(word in flat for word in (data["title"], data["switch"], *data["links"], "symptom", "try it", "remove"))
    assert max(map(len, text.splitlines())) <= 110 and f"attnfix prove --fix {fix}" in flat
    assert "Traceback" not in flat and ("no published release" in flat) is (not data["affected"])


def test_status_says_not_active(engine_python):
    environment = engine_python("sglang", "0.5.11")
    assert json.loads(environment.run("-m", "attnfix", "status", "--json").stdout)["active"] is True
    off = json.loads(environment.run("-m", "attnfix", "status", "--json", ATTNFIX="0").stdout)
    assert off["active"] is False and off["reason"] == "ATTNFIX=0"
    pth = environment.site / "attnfix.pth"
    text = pth.read_text()
    pth.unlink()
    try:
        done = environment.run("-m", "attnfix", "status", check=False)
        assert "NOT ACTIVE" in done.stdout and done.returncode == 3
    finally:
        pth.write_text(text)


def test_status_shows_the_installed_engine_and_a_running_process(engine_python, tmp_path):
    environment = engine_python("sglang", "0.5.10.post1")
    run = {"ATTNFIX_RUN_DIR": str(tmp_path / "run")}
    script = (
        "import subprocess, sys\nfrom attnfix.prove import stubs\nstubs.install('sglang')\n"
        "import sglang.srt.layers.attention.trtllm_mla_backend\n"
        "print('ANSWER' + subprocess.run([sys.executable, '-m', 'attnfix', 'status', '--json'], "
        "capture_output=True, text=True).stdout.replace(chr(10), ''))"
    )
    line = next(line for line in environment.run("-c", script, **run).stdout.splitlines() if line.startswith("ANSWER"))
    status = json.loads(line[len("ANSWER") :])
    assert status["engines"][0]["engine"] == "sglang" and status["engines"][0]["release"] == "0.5.10.post1"
    (process,) = status["processes"]
    assert process["alive"] and process["engine"] == "sglang" and process["release"] == "0.5.10.post1"
    assert process["fixes"][0]["state"] == "installed"
    after = json.loads(environment.run("-m", "attnfix", "status", "--json", **run).stdout)
    assert [p["alive"] for p in after["processes"]] == [False]


@pytest.mark.parametrize("engine, release, verdict", [("sglang", "0.5.11", "fixed upstream"), ("vllm", "0.25.1", "proven")])
def test_prove_on_a_published_release(engine, release, verdict):
    """Every fix on every boundary release is scripts/ledger/matrix.py's; here, what the command says and returns."""
    done = attnfix("prove", "--engine", f"{engine}=={release}", "--fix", FIX[engine], "--json")
    (row,) = json.loads(done.stdout)["results"]
    assert row["verdict"] == verdict, row
    assert done.returncode == 0
    assert (row["engine"], row["release"], row["kernel"], row["edit"]) == (engine, release, "emulated", None)
    assert row["control_identical"] is True
    assert row["fixed_error"] < 0.01
    red = row["stock_error"] is None or row["stock_error"] > 0.05  # None: not finite
    assert red is (verdict == "proven") is (row["corrections"] != 0)


def test_prove_says_of_a_release_that_a_ledger_never_judged_that_it_is_not_judged():
    done = attnfix("prove", "--engine", "vllm==0.11.1", "--fix", "vllm.gdn-uniform-decode")
    assert done.returncode == 0 and "not judged" in done.stdout, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("attnfix: vllm.gdn-uniform-decode on vllm 0.11.1: not judged: releases >=0.12.0 alone were examined")


def outside(fix):
    """Releases among those of the matrix that the fix does not examine."""
    every = {release for other in FIXES if other.engine == fix.engine for release, _ in ledger.load(other).releases()}
    return sorted(every - set(dict(ledger.load(fix).releases())), key=Version)


def test_no_cell_outside_a_ledger_is_run_or_in_error():
    """Through the command line, every one of them; those inside are scripts/ledger/matrix.py's."""
    cells = {fix: releases for fix in FIXES if (releases := outside(fix))}
    assert {"vllm.gdn-uniform-decode", "sglang.fa3-swa-topk"} <= {fix.id for fix in cells}
    for fix, releases in cells.items():
        done = attnfix("prove", "--json", "--fix", fix.id, *(f"--engine={fix.engine}=={release}" for release in releases))
        rows = json.loads(done.stdout)["results"]
        assert [row["release"] for row in rows] == releases and done.returncode == 0
        assert {(row["verdict"], row["seed"]) for row in rows} == {("not judged", None)}


def test_prove_uses_the_engine_that_is_installed(engine_python):
    environment = engine_python("sglang", "0.5.10.post1")
    done = environment.run("-m", "attnfix", "prove", "--fix", FIX["sglang"], "--json")
    (row,) = json.loads(done.stdout)["results"]
    assert (row["release"], row["verdict"]) == ("0.5.10.post1", "proven"), row


def test_prove_says_when_it_is_not_active(engine_python):
    environment = engine_python("sglang", "0.5.10.post1")
    pth = environment.site / "attnfix.pth"
    text = pth.read_text()
    pth.unlink()
    try:
        done = environment.run("-m", "attnfix", "prove", "--fix", FIX["sglang"], "--json", check=False)
    finally:
        pth.write_text(text)
    (row,) = json.loads(done.stdout)["results"]
    assert done.returncode == 1 and row["verdict"] == "unproven" and "NOT ACTIVE" in row["reason"]


def test_what_a_proof_lacks_is_one_sentence(wheels, tmp_path):
    """First the wheel of the proofs, then what the extra brings; at last an engine."""
    from tests.support import environments

    environment = environments.bare(tmp_path / "env")
    (environment.site / "engine-requirements.pth").unlink()
    install = [sys.executable, "-m", "pip", "--python", environment.python, "install", "--quiet"]
    subprocess.run([*install, str(wheels[0])], check=True, capture_output=True)

    def said(*words, code=2):
        done = environment.run("-m", "attnfix", "prove", *words, check=False)
        assert done.returncode == code and len(done.stderr.splitlines()) == 1 and not done.stdout
        return done.stderr

    fetched = "--engine", "sglang==0.5.10.post1"
    needs = 'proofs need pip install "attnfix[prove]"; in a clone: pip install ".[prove]" ./prove'
    assert said() == f"attnfix: attnfix-prove is missing: {needs}\n"
    assert said(*fetched).startswith("attnfix: attnfix-prove, pypi-simple, ") and 'pip install "attnfix[cpu]"' in said(*fetched)
    for command in ("list", "status"):
        assert environment.run("-m", "attnfix", command).returncode == 0
    subprocess.run([*install, "--no-deps", str(wheels[1])], check=True, capture_output=True)
    assert said(*fetched).startswith("attnfix: pypi-simple, ")
    assert said(code=1) == "attnfix: no engine is installed here; name a release, as in --engine sglang==0.5.10.post1\n"
