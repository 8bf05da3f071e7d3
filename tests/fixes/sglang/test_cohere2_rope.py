"""sglang.cohere2-rope without an engine: which layers rotate, which have a window, and which servers stay as they are."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.cohere2_rope.fix import FIX
from tests.support import one_call

KINDS = ["sliding_attention"] * 3 + ["full_attention"]
COHERE2 = SimpleNamespace(model_type="cohere2", layer_types=KINDS, sliding_window=4096)


class Layer:
    def __init__(self, config, layer_id=0, quant_config=None, prefix=""):
        self.attn = SimpleNamespace(sliding_window_size=-1)

    def rotary_emb(self, positions, query, key):
        return -query, -key


def made(monkeypatch, layer_id, config=COHERE2, **flags):
    """(what it rotates 1 and 2 to, its window, how many corrections were counted)"""
    given = {"disaggregation_mode": "null", "attention_backend": "fa3", "prefill_attention_backend": None,
             "speculative_algorithm": None, **flags}  # fmt: skip
    module = ModuleType("sglang.srt.server_args")
    module.get_global_server_args = lambda: SimpleNamespace(**given)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    state, layer = FixState(FIX), object.__new__(Layer)
    one_call.run(FIX.targets[0], Layer.__init__, state, layer, config, layer_id)
    return layer.rotary_emb(0, 1, 2), layer.attn.sliding_window_size, state.counters.corrections


@pytest.mark.parametrize("backend", ["fa3", "triton"])
def test_a_layer_that_sees_all_tokens_rotates_none(monkeypatch, backend):
    assert made(monkeypatch, 3, attention_backend=backend) == ((1, 2), -1, 1)


@pytest.mark.parametrize("flags", [{}, {"attention_backend": None, "prefill_attention_backend": "fa3",
                                        "decode_attention_backend": "trtllm_mha"}])  # fmt: skip
def test_the_others_have_their_window(monkeypatch, flags):
    assert made(monkeypatch, 2, **flags) == ((-1, -2), 4095, 1)


@pytest.mark.parametrize("flags", [{"attention_backend": "triton"}, {"decode_attention_backend": "flashinfer"},
                                   {"speculative_algorithm": "NGRAM"}, {"enable_deterministic_inference": True}])  # fmt: skip
def test_where_all_steps_read_it_from_the_layer(monkeypatch, flags):
    assert made(monkeypatch, 0, **flags) == ((-1, -2), -1, 0)


def test_cohere_1_is_left_alone(monkeypatch):
    assert made(monkeypatch, 3, SimpleNamespace(model_type="cohere")) == ((-1, -2), -1, 0)


@pytest.mark.parametrize("flags", [{"disaggregation_mode": "decode"}, {"enable_hierarchical_cache": True}])
@pytest.mark.parametrize("layer_id", [0, 3])
def test_so_are_servers_whose_keys_others_share(monkeypatch, layer_id, flags):
    assert made(monkeypatch, layer_id, **flags) == ((-1, -2), -1, 0)
