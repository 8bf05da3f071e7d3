"""Role and rank, from the names that both engines give their processes."""

from __future__ import annotations

import multiprocessing
import sys
import types

import pytest

from attnfix.compat.status import process_role
from attnfix.compat.status.process_role import Role


@pytest.mark.parametrize(
    "title, role",
    [
        ("VLLM::EngineCore", Role("engine core")),
        ("VLLM::EngineCore_DP1", Role("engine core", "DP1")),
        ("VLLM::Worker_DP0_PP1_TP3_EP3", Role("worker", "DP0 PP1 TP3 EP3")),
        ("mine::Worker_TP1", Role("worker", "TP1")),  # VLLM_PROCESS_NAME_PREFIX
        ("VLLM::APIServer_1", Role("server", "1")),
        ("VLLM::DPCoordinator", Role("DP coordinator")),
        ("sglang::scheduler_DP1_ATTN_CP0_MOE_DP1_TP0", Role("scheduler", "DP1 ATTN_CP0 MOE_DP1 TP0")),
        ("sglang::detokenizer", Role("detokenizer")),
        ("sglang::tokenizer_worker:4711", Role("tokenizer")),
        ("ray::RayWorkerWrapper.execute_method", Role("worker")),
        ("sglang::something_new", Role("something_new")),
        ("python -m sglang.launch_server", Role()),
        ("a::b c", Role()),
        ("", Role()),
    ],
)
def test_titles(title, role):
    assert process_role.of_title(title) == role


@pytest.mark.parametrize(
    "command, engine",
    [
        (["/env/bin/python", "-m", "sglang.launch_server", "--model", "m"], "sglang"),
        (["python", "-m", "vllm.entrypoints.openai.api_server"], "vllm"),
        (["/env/bin/python", "/env/bin/vllm", "serve", "m"], "vllm"),
        (["sglang", "serve"], "sglang"),
        (["/env/bin/python", "/env/bin/vllm", "bench", "serve"], None),
        (["python", "-m", "sglangs"], None),
        (["python", "serve.py", "vllm"], None),
        (["/env/bin/python3.11", "-u", "-X", "dev", "-m", "vllm.entrypoints.openai.api_server"], "vllm"),
        (["/env/bin/python3", "/env/bin/ray", "symmetric-run", "--address", "h:1", "--", "vllm", "serve", "m"], None),
        (["python", "entrypoint.py", "python", "-m", "sglang.launch_server"], None),
        (["python", "-c", "serve"], None),
        ([], None),
    ],
)
def test_commands(command, engine):
    assert process_role.engine_served_by(command) == engine


def test_a_process_that_nothing_tells_is_a_process(monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", "script.py"])
    monkeypatch.setattr(process_role, "title", lambda pid: "python script.py")
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert process_role.of_this_process() == Role("process", None)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert process_role.of_this_process() == Role("process", "3")
    distributed = types.SimpleNamespace(is_initialized=lambda: True, get_rank=lambda: 5)
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    assert process_role.of_this_process().rank == "5"
    monkeypatch.setattr(distributed, "get_rank", lambda: 1 / 0)
    assert process_role.of_this_process().rank == "3"


def test_the_engines_word_goes_before_the_number(monkeypatch):
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setattr(process_role, "title", lambda pid: "VLLM::Worker_TP1")
    assert process_role.of_this_process() == Role("worker", "TP1")


def run_scheduler_process(queue):
    queue.put(tuple(process_role.of_this_process()))


def test_the_target_of_a_spawned_child_tells_before_it_has_a_title():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=run_scheduler_process, args=(queue,))
    process.start()
    assert queue.get(timeout=60)[0] == "scheduler"
    process.join()
