"""`attnfix doctor --running`: servers of this machine, found by their launch lines. Scripts that wait stand for servers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.integration.test_command_line import attnfix
from tests.integration.test_doctor import R1

SECRETS = ("sk-one", "sk-two", "sk-three", "hf-four", "sk-five")
LINE = ["serve", "models/r1", "--port", "8123", "--api-key", "sk-one", "--made-up=sk-two", "--speculative-config", "{sk-three"]


@pytest.fixture
def start(tmp_path):
    """`start(words, **environment)`: pid of a process called `python …/bin/vllm words`, in a folder with a model."""
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text(
        "import os, sys, time\nif 'fork' not in sys.argv or os.fork(): print('up', flush=True)\ntime.sleep(99)\n"
    )
    (tmp_path / "models" / "r1").mkdir(parents=True)
    (tmp_path / "models" / "r1" / "config.json").write_text(json.dumps(R1))
    running = []

    def start(words, folder=tmp_path, **environment):
        command = [sys.executable, str(program), *words]
        variables = {**os.environ, "HF_TOKEN": "hf-four", "VLLM_API_KEY": "sk-five", **environment}
        running.append(
            subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True, start_new_session=True)
        )
        assert running[-1].stdout.readline() == "up\n"
        return running[-1].pid

    yield start
    for process in running:
        os.killpg(process.pid, 9)
        process.communicate()


def answers(*arguments, **environment):
    done = attnfix("doctor", "--running", "--json", "--gpu", "h100", *arguments, **environment)
    data = json.loads(done.stdout)
    assert not any(secret in done.stdout + done.stderr for secret in SECRETS)
    return done.returncode, {row["pid"]: row for row in data["running"]}, {row["pid"]: row["reason"] for row in data["unread"]}


def test_a_server_is_answered_for_by_its_own_release_model_and_variables(start, engine_python):
    site = str(engine_python("vllm", "0.25.1").site)
    v2, v1 = start(LINE, PYTHONPATH=site), start(LINE, PYTHONPATH=site, VLLM_USE_V2_MODEL_RUNNER="0")
    _, rows, _ = answers(VLLM_USE_V2_MODEL_RUNNER="0")
    found = {pid: {row["fix"]: row for row in rows[pid]["fixes"]}["vllm.mla-context-order"]["verdict"] for pid in (v2, v1)}
    assert found[v2] != "not hit" and found[v1] == "not hit", "each has its own variables, and not those of doctor"
    row = rows[v2]
    assert (row["engine"], row["release"], row["port"]) == ("vllm", "0.25.1", 8123)
    assert (row["architecture"], row["release_from"]) == ("DeepseekV3ForCausalLM", "the server's own Python")
    assert row["not_understood"] == ["--made-up", "--speculative-config"]
    text = attnfix("doctor", "--running", "--gpu", "h100").stdout
    assert f"Server {v2}, port 8123: " in text and not any(secret in text for secret in SECRETS)


def test_a_server_whose_python_is_not_found_asks_for_its_release(start):
    pid = start([*LINE, "fork"])
    code, rows, unread = answers()
    assert code == 1 and pid not in rows and "name it, as in --engine vllm==" in unread[pid]
    assert sum("--engine vllm==" in reason for reason in unread.values()) == 1, "its forked child is no server"
    _, rows, unread = answers("--engine", "vllm==0.25.1")
    assert rows[pid]["release"] == "0.25.1" and pid not in unread


def test_a_model_comes_from_the_hub_cache_of_the_server(start, tmp_path):
    kept = tmp_path / "hub" / "models--deepseek-ai--DeepSeek-R1"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("0123abc")
    shutil.copytree(tmp_path / "models" / "r1", kept / "snapshots" / "0123abc")
    pid = start(["serve", "deepseek-ai/DeepSeek-R1"], HF_HUB_CACHE=str(tmp_path / "hub"))
    assert answers("--engine", "vllm==0.25.1")[1][pid]["architecture"] == "DeepseekV3ForCausalLM"


def test_bad_input_gets_one_sentence():
    done = attnfix("doctor", "--running", "--", "vllm", "serve", "m")
    assert done.returncode == 2 and "leave out MODEL_CONFIG and the launch command" in done.stderr


def test_no_server_and_a_server_of_another_user_are_sentences(monkeypatch, capsys):
    """As on a machine where this user sees none, and where one is another user's."""
    from attnfix import cli
    from attnfix.compat.doctor import running

    monkeypatch.setattr(running, "_pids", lambda: [])
    assert cli.main(["doctor", "--running"]) == 2
    assert "no server of sglang or vLLM runs on this machine" in capsys.readouterr().err
    monkeypatch.setattr(running, "_pids", lambda: [7])
    monkeypatch.setattr(running.process_role, "command_line", lambda pid: ["vllm", "serve", "m"])

    def denied(pid, line):
        raise PermissionError

    monkeypatch.setattr(running, "_server", denied)
    assert cli.main(["doctor", "--running"]) == 1
    assert "Server 7 was not read: it runs as another user" in capsys.readouterr().out
