"""`attnfix status` beside deployments of real releases: spawned and forked ranks, killed ones, containers, no attnfix."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

DEPLOYMENT = Path(__file__).parents[1] / "support" / "deployment.py"
ENGINES = {
    "sglang": ("0.5.9", "sglang.srt.layers.attention.trtllm_mla_backend", "sglang::scheduler_TP{}", "sglang.zero-kv-rows"),
    "vllm": (
        "0.25.1",
        "vllm.v1.attention.backends.mla.prefill.trtllm_ragged,vllm.model_executor.layers.attention.mla_attention",
        "VLLM::Worker_TP{}",
        "vllm.empty-context-chunks",
    ),
}
CONTAINER = ["unshare", "--user", "--map-root-user", "--pid", "--mount-proc", "--uts", "--fork", "--kill-child"]


@pytest.fixture
def deploy(tmp_path):
    """`deploy(environment, *methods, modules=…, before=(), **variables)`: a running deployment with its records in
    `tmp_path / "run"`."""
    running = []

    def start(environment, *methods, modules=None, before=(), **variables):
        _, its_modules, title, _ = ENGINES[environment.engine]
        command = [*before, environment.python, str(DEPLOYMENT), environment.engine, modules or its_modules, title, *methods]
        variables = environment.variables(ATTNFIX_RUN_DIR=str(tmp_path / "run"), **variables)
        with (tmp_path / f"{len(running)}.log").open("w") as log:
            process = subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                       text=True, start_new_session=True)  # fmt: skip
        running.append(process)
        assert any(line == "ready\n" for line in process.stdout), Path(log.name).read_text()
        return process

    yield start
    for process in running:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def status(tmp_path):
    """`status(environment)`: what the command says, and its exit code."""

    def ask(environment, **variables):
        variables = {"ATTNFIX_RUN_DIR": str(tmp_path / "run"), **variables}
        done = environment.run("-m", "attnfix", "status", "--json", check=False, **variables)
        return json.loads(done.stdout), done.returncode

    return ask


def shown(told, fix, alive=True):
    """(role, rank, state) of each process."""
    rows = {id(p): {row["fix"]: row["state"] for row in p["fixes"]} for p in told["processes"]}
    return sorted((p["role"], p["rank"], rows[id(p)][fix]) for p in told["processes"] if p["alive"] is alive)


def until(condition):
    """The kernel ends a killed process a moment after the signal."""
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


@pytest.mark.parametrize("engine", ENGINES)
def test_every_rank_has_a_row_while_it_lives(engine_python, deploy, status, engine):
    release, _, _, fix = ENGINES[engine]
    role = {"sglang": "scheduler", "vllm": "worker"}[engine]
    environment = engine_python(engine, release)
    server = deploy(environment, "spawn", "fork")
    told, code = status(environment)
    assert code == 0, told["missing"]
    assert shown(told, fix) == [("process", None, "installed"), (role, "TP0", "installed"), (role, "TP1", "installed")]
    assert {(p["engine"], p["release"]) for p in told["processes"]} == {(engine, release)}
    assert len({p["fixset"] for p in told["processes"]}) == 1 and not told["warnings"]
    (one,) = (p for p in told["processes"] if p["rank"] == "TP1")
    os.kill(one["pid"], signal.SIGKILL)
    assert until(lambda: len(shown(status(environment)[0], fix)) == 2), "nothing was called in it: it leaves no record"
    os.kill(server.pid, signal.SIGKILL)  # its forked rank was killed, its spawned one lives on
    assert until(lambda: len(shown(status(environment)[0], fix, alive=False)) == 1)
    told, code = status(environment)
    assert code == 0 and shown(told, fix) == [(role, "TP0", "installed")]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_process_that_has_loaded_no_target_is_dormant_and_healthy(engine_python, deploy, status, engine):
    """As vLLM's API server: without a record it would seem to need a restart."""
    release, _, _, fix = ENGINES[engine]
    environment = engine_python(engine, release)
    deploy(environment, modules=engine)
    told, code = status(environment)
    assert shown(told, fix) == [("process", None, "dormant")] and code == 0


def test_containers_that_share_a_volume(engine_python, deploy, status):
    """Each has its own pids and host name, and both have pid 1."""
    if subprocess.run([*CONTAINER, "true"], capture_output=True).returncode:
        pytest.skip("unshare makes no namespaces on this machine")
    environment = engine_python("vllm", ENGINES["vllm"][0])
    one, two = (deploy(environment, before=[*CONTAINER, "sh", "-c", f'hostname {name}; exec "$@"', "sh"]) for name in "ab")
    told, code = status(environment)
    assert sorted((p["host"], p["pid"], p["alive"]) for p in told["processes"]) == [("a", 1, True), ("b", 1, True)]
    assert code == 0
    os.kill(one.pid, signal.SIGKILL)
    assert until(lambda: [p["alive"] for p in status(environment)[0]["processes"]].count(False) == 1)
    assert [p["host"] for p in status(environment)[0]["processes"] if p["alive"]] == ["b"] and two.poll() is None


def test_ranks_that_disagree_are_loud(engine_python, deploy, status, tmp_path):
    environment = engine_python("vllm", ENGINES["vllm"][0])
    deploy(environment)
    deploy(environment, ATTNFIX_VLLM_EMPTY_CONTEXT_CHUNKS="0")
    told, code = status(environment)
    assert len({p["fixset"] for p in told["processes"]}) == 2
    assert ["vllm.empty-context-chunks is installed in 1 of 2" in sentence for sentence in told["warnings"]] == [True]
    assert code == 0, "what the operator has switched off is not missing"
    deploy(environment, before=[environment.python, "-c", REPLACE])
    told, code = status(environment)
    assert code == 3 and any("vllm.empty-context-chunks" in sentence and "conflict" in sentence for sentence in told["missing"])


#: Somebody else replaces a target before attnfix comes to it
REPLACE = """
import runpy, sys
sys.argv = sys.argv[2:]
from attnfix.bootstrap import process
loaded = process.module_loaded
def module_loaded(name):
    if name.endswith("trtllm_ragged"):
        sys.modules[name].TrtllmRaggedPrefillBackend.run_prefill_context_chunk = lambda *args: None
    loaded(name)
process.module_loaded = module_loaded
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_restart_needed_where_attnfix_came_after_the_engine(engine_python, deploy, status):
    environment = engine_python("vllm", ENGINES["vllm"][0])
    pth = environment.site / "attnfix.pth"
    text = pth.read_text()
    pth.unlink()
    try:
        deploy(environment, "spawn")
        told, code = status(environment)
        assert not told["active"] and code == 3 and any("NOT ACTIVE" in sentence for sentence in told["missing"])
    finally:
        time.sleep(1.1)  # process start times are in hundredths of a second after a boot time in seconds
        pth.write_text(text)
    told, code = status(environment)
    assert told["active"] and code == 3 and told["processes"] == []
    (process,) = (p for p in told["unrecorded"] if p["rank"] == "TP0")
    assert (process["engine"], process["role"], process["state"]) == ("vllm", "worker", "restart needed")
    assert "started before attnfix was installed" in process["reason"]
    assert any(f"(pid {process['pid']})" in sentence for sentence in told["missing"])


def test_watch_ends_cleanly(engine_python, deploy, tmp_path):
    environment = engine_python("sglang", ENGINES["sglang"][0])
    deploy(environment)
    variables = environment.variables(ATTNFIX_RUN_DIR=str(tmp_path / "run"), COLUMNS="80", TERM="xterm")
    outer, inner = pty.openpty()
    watch = [environment.python, "-m", "attnfix", "status", "--watch", "0.3"]
    process = subprocess.Popen(watch, env=variables, stdout=inner, stderr=subprocess.PIPE, text=True)
    os.close(inner)
    seen = b""
    while seen.count(b"lse-log-base") < 4:  # more than two looks
        seen += os.read(outer, 65536)
    process.send_signal(signal.SIGINT)
    with suppress(OSError):
        while more := os.read(outer, 65536):
            seen += more
    assert process.wait(30) == 0 and process.stderr.read() == ""
    assert b"installed" in seen and b"Traceback" not in seen


def test_watch_wants_a_time_and_no_json():
    for arguments in (["--watch", "0"], ["--watch", "nan"], ["--watch", "--json"]):
        done = subprocess.run([sys.executable, "-m", "attnfix", "status", *arguments], capture_output=True, text=True)
        assert done.returncode == 2 and done.stderr.startswith("attnfix: --watch takes")
