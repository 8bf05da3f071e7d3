"""`attnfix report` beside a deployment of a real release, with secrets planted wherever one could come from."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

DEPLOYMENT = Path(__file__).parents[1] / "support" / "deployment.py"
MODULE = "sglang.srt.layers.attention.trtllm_mla_backend"
#: A process of the engine in which a fix fails, by a file whose place and lines are nobody's business
FAILING = """
def taken(*args):
    token = "SECRET-LINE"; raise RuntimeError(f"no {__file__} for you")
"""
START = """
import runpy, sys
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv.pop(0))
import failing
from attnfix.compat.arming import activation
activation.take = failing.taken
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def planted(engine_python, tmp_path):
    """The environment, and variables full of secrets around a deployment that runs."""
    environment = engine_python("sglang", "0.5.9")
    home = tmp_path / "SECRET home"
    home.mkdir()
    (home / "failing.py").write_text(FAILING)
    variables = environment.variables(
        HOME=str(home), ATTNFIX_RUN_DIR=str(home / "run"), OPENAI_API_KEY="SECRET-KEY", ATTNFIX_TYPO="SECRET-TYPO",
        ATTNFIX_SGLANG_LSE_LOG_BASE="SECRET-VALUE", ATTNFIX_SGLANG_DRAFT_KV_INDICES="0",
    )  # fmt: skip
    deployment = [str(home), str(DEPLOYMENT), "sglang", MODULE, "sglang::scheduler_TP{}", "spawn"]
    process = subprocess.Popen(
        [environment.python, "-c", START, *deployment], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    # One without a record, called as a server with a key on its command line
    served = tmp_path / "sglang"
    served.write_text("import setproctitle, time\nprint('up', flush=True)\ntime.sleep(300)\n")
    bare = subprocess.Popen([environment.python, str(served), "serve", "--api-key", "SECRET-ARGUMENT"], env=variables,
                            stdout=subprocess.PIPE, text=True, start_new_session=True)  # fmt: skip
    try:
        assert bare.stdout.readline() == "up\n" and any(line == "ready\n" for line in process.stdout)
        yield environment, variables
    finally:
        for each in (process, bare):
            with suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.communicate()


def test_no_secret_is_in_it_and_everything_else_is(planted, tmp_path):
    environment, variables = planted
    command = [environment.python, "-m", "attnfix", "report"]
    done = subprocess.run(command, env=variables, cwd=environment.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "SECRET" not in done.stdout
    engine = os.path.realpath(environment.site / "sglang")
    for hidden in (str(tmp_path), str(environment.folder), engine, f'"{os.uname().nodename}"'):
        assert hidden not in done.stdout, hidden
    told = json.loads(done.stdout)
    assert told["engines"] == [{"engine": "sglang", "release": "0.5.9", "location": "<site>/sglang"}]
    assert told["switches"] == {
        "ATTNFIX_RUN_DIR": "<elsewhere>",
        "ATTNFIX_SGLANG_DRAFT_KV_INDICES": "0",
        "ATTNFIX_SGLANG_LSE_LOG_BASE": "(not read)",
    }
    fixes = {row["fix"]: row for row in told["fixes"]}
    zero = fixes["sglang.zero-kv-rows"]
    assert (zero["verdict"], zero["release"]) == ("affected", "0.5.9") and fixes["sglang.draft-kv-indices"]["state"] == "off"
    assert all(digest is None or len(digest) == 16 for digest in zero["witnesses"].values()) and any(zero["witnesses"].values())
    assert told["python"] == f"CPython {sys.version.split()[0]}" and told["versions"]["torch"]
    assert told["versions"]["sglang"] == "0.5.9" and told["gpu"]["gpus"]

    states = {(p["role"], p["rank"]): {row["fix"]: row for row in p["fixes"]} for p in told["processes"]}
    failed = states["process", None]["sglang.zero-kv-rows"]
    assert failed["state"] == "failed" and "<elsewhere>" in failed["reason"]
    assert "in _try_step" in failed["traceback"] and "in taken" in failed["traceback"]
    assert states["scheduler", "TP0"]["sglang.zero-kv-rows"]["state"] == "installed"
    assert {p["host"] for p in told["processes"]} == {"host 1"}
    assert any(p["role"] == "server" for p in told["unrecorded"])
    assert any("sglang.zero-kv-rows is missing" in sentence for sentence in told["missing"])


def test_other_patchers_are_named(engine_python):
    """By their metadata: nothing of theirs is imported."""
    environment = engine_python("sglang", "0.5.9")
    made = []
    for name, version in (("ddtrace", "2.9.9"), ("opentelemetry-instrumentation-fastapi", "0.50b0"), ("harmless", "1")):
        info = environment.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        made.append(info)
    hook = environment.site / "somebody.pth"
    hook.write_text("import sys\n")
    try:
        told = json.loads(environment.run("-m", "attnfix", "report", "--json").stdout)["patchers"]
    finally:
        hook.unlink()
        for info in made:
            (info / "METADATA").unlink()
            info.rmdir()
    assert told["installed"]["ddtrace"] == "2.9.9" and "opentelemetry-instrumentation-fastapi" in told["installed"]
    assert "harmless" not in told["installed"]
    assert {"attnfix.pth", "somebody.pth"} <= set(told["at start"])
    assert "attnfix: vllm.general_plugins" in told["engine plugins"]


def test_it_is_written_for_its_owner_alone(engine_python, tmp_path):
    environment = engine_python("sglang", "0.5.9")
    file = tmp_path / "report.json"
    said = environment.run("-m", "attnfix", "report", "-o", str(file)).stdout
    assert "read it before you send it" in said and json.loads(file.read_text())["attnfix"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    done = environment.run("-m", "attnfix", "report", "-o", "/proc/no/such", check=False)
    assert done.returncode == 1 and done.stderr.startswith("attnfix: the report cannot be written")
    assert len(done.stderr.splitlines()) == 1
