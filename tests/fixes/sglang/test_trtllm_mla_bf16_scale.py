"""sglang.trtllm-mla-bf16-scale without an engine: over which caches the scale is hidden, and that it comes back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.trtllm_mla_bf16_scale.fix import FIX
from tests.support import one_call


class Backend:
    """Returns the scale that the engine finds."""

    def __init__(self, data_type, error=None):
        self.data_type, self.error = data_type, error

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True):
        if self.error:
            raise self.error
        return layer.k_scale_float if hasattr(layer, "k_scale_float") else "no scale"

    forward_extend = forward_decode


def run(backend, layer, name="forward_decode"):
    state = FixState(FIX)
    found = one_call.run(one_call.target_of(FIX, name), Backend.forward_decode, state, backend, "q", "k", "v", layer, "batch")
    return found, state.counters.corrections


@pytest.mark.parametrize("name", ["forward_decode", "forward_extend"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_cache_of_16_bits_is_read_without_the_scale(name, dtype):
    layer = torch.nn.Module()
    layer.k_scale_float = 0.06
    assert run(Backend(dtype), layer, name) == (None, 1) and layer.k_scale_float == 0.06


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.uint8])
def test_caches_of_8_and_4_bits_keep_it(dtype):
    assert run(Backend(dtype), SimpleNamespace(k_scale_float=0.06)) == (0.06, 0)


@pytest.mark.parametrize("layer", [SimpleNamespace(k_scale_float=None), SimpleNamespace(k_scale_float=1.0), SimpleNamespace()])
def test_without_a_scale_nothing_is_touched(layer):
    before = dict(vars(layer))
    assert run(Backend(torch.bfloat16), layer)[1] == 0 and vars(layer) == before


def test_after_an_error_of_the_engine_the_scale_is_back():
    layer = SimpleNamespace(k_scale_float=0.06)
    with pytest.raises(MemoryError):
        run(Backend(torch.bfloat16, MemoryError()), layer)
    assert layer.k_scale_float == 0.06
