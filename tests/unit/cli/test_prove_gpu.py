"""`attnfix prove --gpu`: which proofs run on the GPU, and in what environment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from attnfix.cli import main
from attnfix.patches.catalogue import BY_ID
from attnfix.prove import runner
from attnfix.prove.verdict import UNPROVEN

INTERPRETED, EMULATED = BY_ID["vllm.both-empty-merge-triton"], BY_ID["vllm.empty-context-chunks"]


@pytest.fixture
def children(monkeypatch):
    """Requests and environments of the children that would run."""
    seen = []

    def run(command, env, **_):
        request = json.loads(command[-1])
        seen.append((request, env))
        answers = {fix: {"error": "not run", "device": request["device"]} for fix in request["packages"]}
        return SimpleNamespace(stdout="attnfix-answer " + json.dumps(answers), stderr="", returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    return seen


@pytest.mark.parametrize(
    "fix, gpu, device",
    [(INTERPRETED, True, "cuda"), (INTERPRETED, False, "cpu"), (EMULATED, True, "cpu"), (EMULATED, False, "cpu")],
)
def test_a_triton_kernel_runs_on_the_gpu_and_a_stand_in_does_not(children, monkeypatch, fix, gpu, device):
    pytest.importorskip("torch")
    for name in ("CUDA_VISIBLE_DEVICES", "TRITON_INTERPRET"):
        monkeypatch.delenv(name, raising=False)
    result = runner.prove(fix, "1.0", Path("/nowhere/vllm"), gpu=gpu)
    assert result.verdict == UNPROVEN and result.device == device and len(children) == 2
    for request, environment in children:
        hides = environment.get("CUDA_VISIBLE_DEVICES"), environment.get("TRITON_INTERPRET")
        assert (request["device"], hides) == (device, (None, None) if device == "cuda" else ("", "1"))
    assert {environment.get("ATTNFIX") for _, environment in children} == {"0", None}


def test_the_command_line_says_what_gpu_needs(monkeypatch, capsys):
    torch = pytest.importorskip("torch")
    assert main(["prove", "--gpu", "--engine", "vllm==0.25.1"]) == 2
    assert "--gpu is for engines installed here" in capsys.readouterr().err
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["prove", "--gpu"]) != 0
    assert "torch sees no GPU" in capsys.readouterr().err
