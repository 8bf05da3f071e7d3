"""vllm.qwen2-vision-ranks without an engine: what a rank of two has of queries 0-3, keys 4-7 and values 8-11."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.qwen2_vision_ranks.fix import FIX
from tests.support import one_call

EVERY = torch.arange(12).expand(5, 1, 12)


def split_qkv(self, qkv):
    return qkv


@pytest.mark.parametrize("name, ranks, rank, heads, corrections", [
    ("Qwen2VisionAttention", 2, 0, [0, 1, 4, 5, 8, 9], 1),
    ("Qwen2VisionAttention", 2, 1, [2, 3, 6, 7, 10, 11], 1),
    ("Qwen2VisionAttention", 1, 1, [6, 7, 8, 9, 10, 11], 0),  # each rank has a tower
    ("DotsVisionAttention", 2, 1, [6, 7, 8, 9, 10, 11], 0),
])  # fmt: skip
def test_heads_of_a_rank(name, ranks, rank, heads, corrections, monkeypatch):
    gathers = SimpleNamespace(tensor_model_parallel_all_gather=lambda local: EVERY)
    monkeypatch.setitem(sys.modules, "vllm.distributed", gathers)
    layer, state = type(name, (), {})(), FixState(FIX)
    layer.tp_size, layer.tp_rank = ranks, rank
    local = EVERY.chunk(2, -1)[rank]
    result = one_call.run(one_call.target_of(FIX, "split_qkv"), split_qkv, state, layer, local)
    assert result[0, 0].tolist() == heads and result.shape == local.shape and state.counters.corrections == corrections
