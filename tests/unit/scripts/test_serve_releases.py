"""`scripts.serve.releases`: jobs of one engine at a time, as many as there is room for, and nothing of their evidence lost."""

from __future__ import annotations

import argparse
import json

import pytest

from scripts.serve import e2e, releases
from scripts.serve.releases import Job, Running

CASE = """
import json, pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
out.mkdir(parents=True)
about = {"gpu": "NVIDIA H200", "engine": "vllm", "release": pathlib.Path(__file__).parent.name.partition("-")[2]}
cases = {sys.argv[1]: {"failures": [], "machine": about}}
(out / f"e2e-h200-vllm-{about['release']}.json").write_text(json.dumps({**about, "cases": cases}))
sys.exit(sys.argv[1] == "bad")
"""


@pytest.fixture
def engines(tmp_path):
    for name in ("vllm-1.0", "vllm-2.0", "sglang-3.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "case_of.py").write_text(CASE)
    return tmp_path


def running(line, *gpus):
    return Running(Job.of(line), None, gpus or (0,))


def test_a_job_is_its_folders_and_what_runs_there():
    job = Job.of("/opt/vllm-1.0:/opt/needs scripts.serve.gpu_probe --case a")
    assert (job.engine, job.name) == ("vllm", "vllm-1.0-gpu_probe-case-a")
    assert Job.of("/opt/vllm-1.0").words == ("scripts.serve.served",)


def test_what_stands_before_the_folders_is_its_environment():
    job = Job.of("GPUS=2 SERVERS=3 LD_PRELOAD=/opt/own.so /opt/sglang-1.0:/opt/torch-2.0 case --set a=b")
    assert (job.gpus, job.servers(8), job.engine) == (2, 3, "sglang")
    assert dict(job.environment)["LD_PRELOAD"] == "/opt/own.so"
    assert job.words == ("case", "--set", "a=b")
    assert Job.of("/opt/vllm-1.0").servers(8) == 8


def test_the_emptiest_gpus_take_a_job_while_they_have_room():
    job, both = Job.of("/c"), Job.of("GPUS=2 SERVERS=4 /d")
    two = [running("/a", 0), running("/b", 1)]
    assert releases.room(job, [], (0, 1), 8, 12) == [0]
    assert releases.room(job, two[:1], (0, 1), 8, 12) == [1]
    assert releases.room(job, two, (0, 1), 8, 12) is None
    assert releases.room(job, two, (0, 1), 6, 12) == [0]
    assert releases.room(job, [], (0,), 20, 12) == [0]  # a GPU with nothing on it takes any
    assert releases.room(both, two, (0, 1), 8, 12) == [0, 1]
    assert releases.room(both, two, (0, 1), 9, 12) is None
    assert releases.room(both, [], (0,), 8, 12) is None  # there is but one
    assert releases.room(job, [], (1,), 8, 12) == [1]  # the others are somebody else's
    assert releases.room(job, [Running(both, None, (0, 1))], (0, 1), 9, 12) is None


def test_engines_do_not_mix_and_a_folder_is_waited_for(engines):
    waiting = [Job.of(f"{engines}/{name}") for name in ("vllm-9.0", "sglang-3.0", "vllm-2.0")]
    assert releases.next_job(waiting, [], (0,), 8, 16) == (waiting[1], [0])
    assert releases.next_job(waiting, [running(f"{engines}/vllm-1.0")], (0,), 8, 16) == (waiting[2], [0])
    assert releases.next_job(waiting[:1], [], (0,), 8, 16) is None


def test_a_smaller_job_goes_before_one_that_finds_no_room(engines):
    waiting = [Job.of(f"{engines}/vllm-1.0"), Job.of(f"SERVERS=2 {engines}/vllm-2.0")]
    assert releases.next_job(waiting, [running(f"{engines}/vllm-1.0")], (0,), 8, 12) == (waiting[1], [0])


def test_all_run_and_their_evidence_comes_together(engines, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(releases, "_APART_S", 0.0)
    monkeypatch.setattr(releases, "_PATIENCE_S", 1.0)
    monkeypatch.setattr(releases.sys, "argv", ["releases", "--out", str(tmp_path / "out")])
    monkeypatch.setattr(e2e, "require_attnfix", lambda: None)
    monkeypatch.setattr(e2e, "gpus", lambda: 1)
    lines = [f"{engines}/vllm-1.0 case_of one", f"{engines}/vllm-1.0 case_of bad", f"{engines}/vllm-9.0 case_of one", ""]
    monkeypatch.setattr(releases.sys, "stdin", argparse.Namespace(readline=iter([*lines, ""]).__next__))
    assert releases.main() == 1
    said = capsys.readouterr().out
    assert "vllm-1.0-case_of-bad\nvllm-9.0-case_of-one: its folders are not there, or its GPUs" in said
    found = json.loads((tmp_path / "out" / "e2e-h200-vllm-1.0.json").read_text())
    assert set(found["cases"]) == {"one", "bad"}
