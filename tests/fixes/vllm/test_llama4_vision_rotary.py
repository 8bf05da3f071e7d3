"""vllm.llama4-vision-rotary without an engine: which tables a call casts, and what the engine finds afterwards."""

from __future__ import annotations

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.llama4_vision_rotary.fix import FIX
from tests.support import one_call


class Rotary(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.register_buffer("cos_sin_cache", torch.full((3,), 0.5 + 0.25j).to(dtype), persistent=False)

    def _match_cos_sin_cache_dtype(self, query):
        self.cos_sin_cache = self.cos_sin_cache.to(query.dtype)

    def forward_native(self, query, key=None):
        if key is None:
            raise AssertionError("the engine's")
        self._match_cos_sin_cache_dtype(query)
        return query.float() * self.cos_sin_cache


@pytest.mark.parametrize("dtype, factor, corrections", [(torch.complex64, 0.5 + 0.25j, 2), (torch.float32, 0.5, 0)])
@pytest.mark.filterwarnings("ignore:Casting complex")
def test_a_complex_table_stays_complex(dtype, factor, corrections):
    layer, state, query = Rotary(dtype), FixState(FIX), torch.ones(3, dtype=torch.bfloat16)
    target = one_call.target_of(FIX, "forward_native")
    for _ in range(2):
        assert (one_call.run(target, Rotary.forward_native, state, layer, query, query) == factor).all()
    assert state.counters.corrections == corrections and "_match_cos_sin_cache_dtype" not in vars(layer)
    assert list(dict(layer.named_buffers())) == ["cos_sin_cache"]


def test_a_table_follows_its_queries():
    layer, query = Rotary(torch.complex64), torch.empty(3, dtype=torch.bfloat16, device="meta")
    one_call.run(one_call.target_of(FIX, "forward_native"), Rotary.forward_native, FixState(FIX), layer, query, query)
    assert layer.cos_sin_cache.device.type == "meta" and layer.cos_sin_cache.dtype == torch.complex64


def test_what_the_engine_raises_passes():
    layer, state = Rotary(torch.complex64), FixState(FIX)
    with pytest.raises(AssertionError, match="the engine's"):
        one_call.run(one_call.target_of(FIX, "forward_native"), Rotary.forward_native, state, layer, torch.ones(3))
    assert "_match_cos_sin_cache_dtype" not in vars(layer)
