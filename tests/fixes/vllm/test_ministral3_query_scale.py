"""vllm.ministral3-query-scale without an engine: whose queries are scaled, and what its compiled code is cached by."""

from __future__ import annotations

import shlex
import sys
from types import SimpleNamespace

import pytest

from attnfix.cli import doctor
from attnfix.compat.doctor.condition import HIT
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.ministral3_query_scale import wrap
from attnfix.patches.vllm.ministral3_query_scale.fix import FIX
from tests.support import one_call
from tests.support.deployments import MODELS

BETA, ORIGINAL, STOCK = 0.1, 64, "0123456789"
ROPE = {"rope_type": "yarn", "original_max_position_embeddings": ORIGINAL, "llama_4_scaling_beta": BETA}
OTHERS = {"beta": 0.3, "original_max_position_embeddings": 8}


class Layer:
    def __init__(self, config, hidden_size=8):
        if hidden_size < 0:
            raise ValueError("the engine's")
        found = getattr(config, "llama_4_scaling", None)
        self.do_llama_4_scaling = found is not None
        if found:
            self.llama_4_scaling_beta = found["beta"]
            self.llama_4_scaling_original_max_position_embeddings = found["original_max_position_embeddings"]


def compute_hash(self):
    return STOCK


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setattr(wrap, "_process", {})


def made(monkeypatch, rope=ROPE, length=1024, folder="", size=8, **config):
    """((beta, original length) that the layer scales by, corrections, what code is cached by)."""
    parts = {"model_config": SimpleNamespace(max_model_len=length), "compilation_config": SimpleNamespace(cache_dir=folder)}
    server = length and SimpleNamespace(**parts)
    monkeypatch.setitem(sys.modules, "vllm.config", SimpleNamespace(_current_vllm_config=server))
    monkeypatch.delitem(sys.modules, "vllm.config.vllm", raising=False)
    state, layer = FixState(FIX), object.__new__(Layer)
    settings = SimpleNamespace(rope_parameters=rope, **config)
    one_call.run(one_call.target_of(FIX, "__init__"), Layer.__init__, state, layer, settings, size)
    key = one_call.run(one_call.target_of(FIX, "compute_hash"), compute_hash, FixState(FIX), server)
    names = "llama_4_scaling_beta", "llama_4_scaling_original_max_position_embeddings"
    scaling = tuple(getattr(layer, name) for name in names) if layer.do_llama_4_scaling else None
    return scaling, state.counters.corrections, key


@pytest.mark.parametrize("length", [None, ORIGINAL + 1, 1024])
def test_a_layer_scales_queries_and_its_code_has_a_cache_entry_of_its_own(monkeypatch, length):
    scaling, corrections, key = made(monkeypatch, length=length)
    assert (scaling, corrections) == ((BETA, ORIGINAL), 1)
    assert key != STOCK and len(key) == len(STOCK)


@pytest.mark.parametrize(
    "rope",
    [None, {}, {**ROPE, "llama_4_scaling_beta": None}, {**ROPE, "llama_4_scaling_beta": 0.0},
     {"rope_type": "yarn", "llama_4_scaling_beta": BETA}, {"full_attention": ROPE}],
)  # fmt: skip
def test_a_checkpoint_without_the_setting_is_left_alone(monkeypatch, rope):
    assert made(monkeypatch, rope) == (None, 0, STOCK)


@pytest.mark.parametrize("of", [{"length": ORIGINAL}, {"length": 1}, {"folder": "/cache"}])
def test_short_servers_and_a_folder_of_compiled_code_are_left_alone(monkeypatch, of):
    assert made(monkeypatch, **of) == (None, 0, STOCK)


def test_what_the_engine_reads_stays(monkeypatch):
    assert made(monkeypatch, llama_4_scaling=OTHERS) == ((0.3, 8), 0, STOCK)


def test_what_the_engine_raises_passes(monkeypatch):
    with pytest.raises(ValueError, match="the engine's"):
        made(monkeypatch, size=-1)


@pytest.mark.parametrize("folder, left", [("", False), ("--compilation-config.cache_dir /cache", True)])
def test_doctor_says_where_the_fix_stays_out(folder, left):
    line, on = read(shlex.split(f"vllm serve m --config-format hf {folder}")), {"ATTNFIX_VLLM_MINISTRAL3_QUERY_SCALE": "1"}
    rows = doctor.examine(Deployment("vllm", config=MODELS["Ministral3"], launch=line, environment=on), "0.33.0")
    (row,) = [row for row in rows if row["fix"] == FIX.id]
    assert row["verdict"] == HIT and row["attnfix"].startswith("leaves it alone") is left
