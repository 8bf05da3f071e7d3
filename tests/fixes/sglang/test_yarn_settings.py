"""sglang.yarn-settings without an engine: whose table is written anew, of which settings, and how often."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.yarn_settings.fix import FIX
from tests.support import one_call

USUAL = 0.1 * math.log(16) + 1
BOTH, EXACT = {"mscale": 1.0, "mscale_all_dim": 1.0}, {"truncate": False}
PAIR = {**BOTH, "llama_4_scaling_beta": 0.1}


def _yarn_find_correction_range(low, high):
    return math.floor(low), math.ceil(high)


class YaRNScalingRotaryEmbedding:
    """Its table is its bounds, times its scale."""

    def __init__(self, attn_factor=1.0, *, beta_fast=32):
        self.mscale = USUAL * attn_factor
        self.cos_sin_cache = self._compute_cos_sin_cache().to(torch.bfloat16)

    def _compute_inv_freq(self, factor):
        return torch.tensor(_yarn_find_correction_range(1.5, 2.5)).float()

    def _compute_cos_sin_cache(self):
        return self._compute_inv_freq(16.0) * self.mscale


class Reads(YaRNScalingRotaryEmbedding):
    """From 0.5.7 on."""

    def __init__(self, *, truncate=True):
        self.truncate = truncate
        super().__init__()


class DualChunk(YaRNScalingRotaryEmbedding):
    pass


def get_rope(head_size, rope_scaling=None):
    if head_size < 0:
        raise ValueError("the engine's")
    return rope_scaling.pop("shared", None) or YaRNScalingRotaryEmbedding()


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    launched(monkeypatch)


def made(shared=None, state=None, head=64, **rope):
    """(the table, corrections) of a layer with these settings."""
    state, shared = state or FixState(FIX), shared or YaRNScalingRotaryEmbedding()
    settings = {"rope_type": "yarn", "factor": 16.0, "shared": shared, **rope}
    one_call.run(one_call.target_of(FIX, "get_rope"), get_rope, state, head, settings)
    return shared.cos_sin_cache.tolist(), state.counters.corrections


def launched(monkeypatch, **flags):
    """As from 0.5.4 on."""
    args = SimpleNamespace(**{"disaggregation_mode": "null", "enable_lmcache": False, **flags})
    monkeypatch.setitem(sys.modules, "sglang.srt.server_args", SimpleNamespace(get_global_server_args=lambda: args))


class Runner:
    """As up to 0.5.3.post1: the runner is among the callers."""

    def __init__(self, **flags):
        self.server_args = SimpleNamespace(**{"disaggregation_mode": "null", **flags})

    def load_model(self, **rope):
        return made(**rope)


def table(low, high, scale=USUAL):
    return (torch.tensor([low, high]) * scale).to(torch.bfloat16).tolist()


@pytest.mark.parametrize(
    "rope, right",
    [
        (PAIR, table(1, 3, 1.0)),
        ({**PAIR, "mscale": 0.5}, table(1, 3, (USUAL + 1) / 2 / USUAL)),
        (EXACT, table(1.5, 2.5)),
        ({**EXACT, **PAIR}, table(1.5, 2.5, 1.0)),
    ],
)
def test_layers_share_one_table_which_is_corrected_once(rope, right):
    shared, state = YaRNScalingRotaryEmbedding(), FixState(FIX)
    place = shared.cos_sin_cache.data_ptr()
    for _ in range(3):
        found = made(shared, state, **rope)
    assert found == (right, 1) and shared.cos_sin_cache.data_ptr() == place
    assert "_compute_inv_freq" not in vars(shared) and shared.cos_sin_cache.dtype == torch.bfloat16


@pytest.mark.parametrize(
    "rope",
    [
        {}, {"truncate": True}, {"mscale": 1.0}, {"mscale": 1.0, "mscale_all_dim": 0}, {**PAIR, "factor": 1.0},
        BOTH, {**BOTH, "llama_4_scaling_beta": 0},
        {**PAIR, "attention_factor": 1.2}, {**PAIR, "attn_factor": 1.0}, {**PAIR, "rope_type": "deepseek_yarn"},
        {**EXACT, "rope_type": "llama3"}, {**EXACT, **PAIR, "mrope_section": (1, 1, 1)},
    ],
)  # fmt: skip
def test_settings_that_the_engine_reads_and_other_kinds_are_left_alone(rope):
    assert made(**rope) == (table(1, 3), 0)


def test_bounds_that_the_engine_reads_and_another_embedding_are_left_alone(monkeypatch):
    assert made(DualChunk(), **PAIR) == (table(1, 3), 0)
    monkeypatch.setitem(globals(), "YaRNScalingRotaryEmbedding", Reads)
    assert made(Reads(), **EXACT) == (table(1, 3), 0)
    both = Reads(truncate=False)
    assert made(both, **EXACT, **PAIR) == (table(1, 3, 1.0), 1) and both.truncate is False


@pytest.mark.parametrize("flags", [{"disaggregation_mode": "decode"}, {"enable_lmcache": True}])
def test_a_server_whose_keys_others_share_is_left_alone(monkeypatch, flags):
    launched(monkeypatch, **flags)
    state, other = FixState(FIX), FixState(FIX)
    assert made(state=state, **PAIR) == (table(1, 3), 0) and "shares keys" in state.left_out
    assert made(state=other) == (table(1, 3), 0) and other.left_out is None


@pytest.mark.parametrize("holds", [{}, {"get_global_server_args": lambda: {}["not published"]}])
def test_the_runner_that_loads_the_model_says_how_it_was_launched(monkeypatch, holds):
    monkeypatch.setitem(sys.modules, "sglang.srt.server_args", SimpleNamespace(**holds))
    assert Runner().load_model(**PAIR) == (table(1, 3, 1.0), 1)
    assert Runner(enable_hierarchical_cache=True).load_model(**PAIR) == (table(1, 3), 0)
    state = FixState(FIX)
    assert made(state=state, **PAIR) == (table(1, 3), 0) and "not known" in state.left_out


def test_what_the_engine_raises_passes():
    with pytest.raises(ValueError, match="the engine's"):
        made(head=-1, **PAIR)
