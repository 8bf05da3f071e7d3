"""Our variables among those that an engine gives to its Ray workers: what the operator said first stays first."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from attnfix.compat.arming import ray_workers
from attnfix.compat.status import messages, metrics

VLLM, SGLANG = "vllm.ray.ray_env", "sglang.srt.ray.scheduler_actor"


@pytest.fixture(autouse=True)
def unnamed(monkeypatch):
    """A process whose server has no name in the environment, and has none there afterwards."""
    monkeypatch.setenv(metrics.SERVER, "")
    monkeypatch.delenv(metrics.SERVER)


@pytest.fixture
def module(monkeypatch):
    """`module(name, **attributes)`: a loaded module of that name."""

    def make(name, **attributes):
        made = ModuleType(name)
        vars(made).update(attributes)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    return make


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr(messages, "warn", lambda engine, message: lines.append(message))
    return lines


@pytest.fixture
def vllm(module):
    def get_env_vars_to_copy(exclude_vars=None, additional_vars=None, destination=None):
        return {"VLLM_A"} | (additional_vars or set())

    return module(VLLM, get_env_vars_to_copy=get_env_vars_to_copy, RAY_NON_CARRY_OVER_ENV_VARS={"ATTNFIX_RUN_DIR"})


def test_vllm_copies_ours_but_not_what_is_excluded(vllm, monkeypatch):
    for name in ("ATTNFIX", "ATTNFIX_STRICT", "ATTNFIX_RUN_DIR", "ATTNFIXED"):
        monkeypatch.setenv(name, "1")
    ray_workers.module_loaded(VLLM)
    names = vllm.get_env_vars_to_copy
    assert names() == {"VLLM_A", "ATTNFIX", "ATTNFIX_STRICT", metrics.SERVER}
    assert names({"ATTNFIX_STRICT"}, {"B"}, destination="workers") == {"VLLM_A", "B", "ATTNFIX", metrics.SERVER}


def test_names_imported_before_are_rebound_once(vllm, module, monkeypatch):
    monkeypatch.setenv("ATTNFIX", "0")
    executor = module("vllm.executor", get_env_vars_to_copy=vllm.get_env_vars_to_copy)
    ray_workers.catch_up()
    first = executor.get_env_vars_to_copy
    ray_workers.catch_up()
    assert first is executor.get_env_vars_to_copy is vllm.get_env_vars_to_copy
    assert first() == {"VLLM_A", "ATTNFIX"}  # a driver that is switched off has no page that workers could be on


def test_sglang_gets_them_beside_its_own_runtime_environment(module, monkeypatch):
    actor = SimpleNamespace(options=lambda **given: given)
    module(SGLANG, SchedulerActor=actor)
    ray_workers.module_loaded(SGLANG)
    assert actor.options(num_gpus=1) == {"num_gpus": 1}, "nobody set a switch"
    monkeypatch.setenv("ATTNFIX_STRICT", "1")
    ours = {"ATTNFIX_STRICT": "1", metrics.SERVER: metrics.server()}
    assert actor.options(num_gpus=1) == {"num_gpus": 1, "runtime_env": {"env_vars": ours}}
    monkeypatch.setenv("ATTNFIX", "0")
    given = {"runtime_env": {"pip": ["x"], "env_vars": {"ATTNFIX": "auto", "B": "2"}}}
    assert actor.options(**given) == {
        "runtime_env": {"pip": ["x"], "env_vars": {"ATTNFIX": "auto", "B": "2", "ATTNFIX_STRICT": "1"}}
    }
    assert given["runtime_env"]["env_vars"] == {"ATTNFIX": "auto", "B": "2"}


def test_a_worker_that_is_no_child_is_of_the_drivers_server():
    ask = [sys.executable, "-c", "from attnfix.compat.status import metrics; print(metrics.server())"]
    environments = [{**os.environ, **more} for more in ({}, ray_workers.variables())]
    other, worker = (subprocess.check_output(ask, env=environment, text=True).strip() for environment in environments)
    assert worker == metrics.server() != other


def test_an_engine_of_another_shape_is_left_alone_and_said(module, said):
    module(VLLM)
    ray_workers.module_loaded(VLLM)
    assert len(said) == 1 and "set them there, too: AttributeError" in said[0]


def test_an_allow_list_without_us_is_respected(vllm, monkeypatch):
    monkeypatch.setenv("VLLM_PLUGINS", "other")
    before = vllm.get_env_vars_to_copy
    ray_workers.module_loaded(VLLM)
    assert vllm.get_env_vars_to_copy is before


def test_a_blank_restriction_is_copied_like_any_other(vllm, monkeypatch):
    """Without it, every fix would be on in the workers and none in the driver."""
    monkeypatch.setenv("ATTNFIX_ONLY", "")
    monkeypatch.setenv("ATTNFIX_FIXSET", "0123456789ab")
    ray_workers.module_loaded(VLLM)
    assert {"ATTNFIX_ONLY", "ATTNFIX_FIXSET"} < vllm.get_env_vars_to_copy()
