"""vllm.yarn-attention-factor without an engine: whose table is written anew, with which factor, and how often."""

from __future__ import annotations

import math
import shlex
import sys
from types import SimpleNamespace

import pytest
import torch

from attnfix.cli import doctor
from attnfix.compat.doctor.condition import HIT
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.yarn_attention_factor.fix import FIX
from tests.support import one_call
from tests.support.deployments import MODELS

YARN, USUAL = {"rope_type": "yarn", "factor": 16.0}, 0.1 * math.log(16) + 1
BOTH = {"mscale": 1.0, "mscale_all_dim": 1.0}
PAIR = {**BOTH, "llama_4_scaling_beta": 0.1}
HALF = {**PAIR, "mscale": 0.5}


class YaRNScalingRotaryEmbedding:
    """A table of its factor."""

    def __init__(self, rope):
        if (rope["factor"] or 0) < 0:
            raise ValueError("the engine's")
        self.mscale = USUAL * rope.get("attn_factor", 1) if rope.get("apply_yarn_scaling", True) else 1.0
        self.cos_sin_cache = self._compute_cos_sin_cache().to(torch.bfloat16)

    def _compute_cos_sin_cache(self):
        return torch.tensor([self.mscale])


class MRotaryEmbedding(YaRNScalingRotaryEmbedding):
    """On ROCm, whose compiled code reads another table."""

    def __init__(self, rope):
        super().__init__(rope)
        self.cos_sin_cache = self.cos_sin_cache.float()
        self.cos_sin_cache_bf16 = self.cos_sin_cache.to(torch.bfloat16)


class OfAPlatform(YaRNScalingRotaryEmbedding):
    pass


def of(rope):
    kinds = {"images": MRotaryEmbedding, "platform": OfAPlatform}
    return kinds.get(rope.get("kind"), YaRNScalingRotaryEmbedding)(rope) if rope else SimpleNamespace()


@pytest.fixture(params=["rope_parameters", "rope_scaling"])
def get_rope(request):
    """Of a release whose settings of RoPE have this name."""
    shared = {}

    def by_parameters(head_size, rope_parameters=None):
        return shared.setdefault(str(rope_parameters), of(rope_parameters))

    def by_scaling(head_size, rope_scaling=None):
        return shared.setdefault(str(rope_scaling), of(rope_scaling))

    return by_parameters if request.param == "rope_parameters" else by_scaling


def made(get_rope, rope, layers=1, connector=None, load_format="auto"):
    """(the embedding that the last layer gets, corrections)"""
    state, kv = FixState(FIX), connector and SimpleNamespace(kv_connector=connector)
    server = SimpleNamespace(kv_transfer_config=kv, load_config=SimpleNamespace(load_format=load_format))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "vllm.config", SimpleNamespace(_current_vllm_config=server))
        patch.delitem(sys.modules, "vllm.config.vllm", raising=False)
        for _ in range(layers):
            rotary = one_call.run(one_call.target_of(FIX, "get_rope"), get_rope, state, 64, rope)
    return rotary, state.counters.corrections


@pytest.mark.parametrize(
    "more, scale",
    [(PAIR, 1.0), ({"attention_factor": 1.5}, 1.5), ({**PAIR, "attention_factor": 1.5}, 1.5),
     (HALF, (0.05 * math.log(16) + 1) / USUAL), ({**PAIR, "attn_factor": 1.0}, 1.0)],
)  # fmt: skip
def test_all_layers_share_a_table_with_the_checkpoints_factor(get_rope, more, scale):
    rotary, corrections = made(get_rope, {**YARN, **more}, layers=3)
    assert rotary.mscale == scale and corrections == 1
    assert rotary.cos_sin_cache.tolist() == torch.tensor([scale], dtype=torch.bfloat16).tolist()


@pytest.mark.parametrize(
    "rope",
    [YARN, {**YARN, "attention_factor": USUAL}, {**YARN, "mscale": 1.0}, {**YARN, "mscale": 1.0, "mscale_all_dim": 0},
     {**YARN, **PAIR, "attn_factor": 0.5}, {**YARN, **PAIR, "apply_yarn_scaling": False},
     {**YARN, **PAIR, "rope_type": "deepseek_yarn"}, {**PAIR, "factor": 2.0},
     {**YARN, "factor": None, "attention_factor": 1.5}, {**YARN, **BOTH}, {**YARN, **BOTH, "llama_4_scaling_beta": 0},
     {**YARN, **PAIR, "kind": "platform"}],
)  # fmt: skip
def test_other_settings_are_left_alone(get_rope, rope):
    stock = of(rope)
    rotary, corrections = made(get_rope, rope)
    assert (rotary.mscale, rotary.cos_sin_cache, corrections) == (stock.mscale, stock.cos_sin_cache, 0)


def test_the_table_of_compiled_code_is_corrected_too(get_rope):
    rotary, corrections = made(get_rope, {**YARN, **PAIR, "kind": "images"}, layers=2)
    assert (rotary.cos_sin_cache.tolist(), rotary.cos_sin_cache_bf16.tolist(), corrections) == ([1.0], [1.0], 1)


@pytest.mark.parametrize("server", [{"connector": "NixlConnector"}, {"load_format": "tensorizer"}])
def test_a_server_whose_keys_or_tables_others_have_is_left_alone(get_rope, server):
    rotary, corrections = made(get_rope, {**YARN, **PAIR}, **server)
    assert (rotary.mscale, corrections) == (USUAL, 0)


def test_a_model_without_settings_is_left_alone(get_rope):
    assert made(get_rope, None)[1] == 0


def test_an_embedding_that_has_no_factor_is_left_alone():
    def get_rope(head_size, rope_parameters=None):
        return SimpleNamespace(cos_sin_cache=torch.ones(1))

    assert made(get_rope, {**YARN, **PAIR})[1] == 0


def test_what_the_engine_raises_passes(get_rope):
    with pytest.raises(ValueError, match="the engine's"):
        made(get_rope, {**YARN, **PAIR, "factor": -1.0})


@pytest.mark.parametrize(
    "more, by",
    [("--config-format hf", ""), ("--config-format hf --kv-transfer-config.kv_connector X", "KV connector"),
     ("--config-format hf --load-format tensorizer", "--load-format")],
)  # fmt: skip
def test_doctor_says_where_the_fix_stays_out(more, by):
    line = read(shlex.split(f"vllm serve m {more}"))
    rows = doctor.examine(Deployment("vllm", config=MODELS["Ministral3"], launch=line, environment={}), "0.29.0")
    (row,) = [row for row in rows if row["fix"] == FIX.id]
    assert (row["verdict"], row["corrected"]) == (HIT, not by)
    assert row["attnfix"].startswith(f"leaves it alone: {by}" if by else "corrects it")
