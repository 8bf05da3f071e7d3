"""vllm.dots-ocr-ranks without an engine: how many ranks the function gathers of."""

from __future__ import annotations

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.dots_ocr_ranks.fix import FIX
from tests.support import one_call


def split_qkv(self, qkv):
    return f"{qkv} of {self.tp_size}"


@pytest.mark.parametrize("name, ranks, result, corrections", [
    ("DotsVisionAttention", 2, "x of 1", 1), ("DotsVisionAttention", 1, "x of 1", 0), ("Qwen2VisionAttention", 2, "x of 2", 0),
])  # fmt: skip
def test_the_tower_of_dots_ocr_gathers_nothing(name, ranks, result, corrections):
    layer, state = type(name, (), {})(), FixState(FIX)
    layer.tp_size = ranks
    assert one_call.run(one_call.target_of(FIX, "split_qkv"), split_qkv, state, layer, "x") == result
    assert layer.tp_size == ranks and state.counters.corrections == corrections
