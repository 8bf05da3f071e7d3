"""sglang.trtllm-mha-kv-scales without an engine: what becomes of the result and of the layer, by kind of cache."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.trtllm_mha_kv_scales.fix import FIX
from tests.support import one_call
from tests.support.no_sync import NoSync


class Backend:
    """Attention is 8 everywhere; notes the scale of keys that the engine finds."""

    def __init__(self, data_type, error=None):
        self.data_type, self.error = data_type, error

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs):
        self.seen = layer.k_scale_float
        if self.error:
            raise self.error
        return torch.full((2, 3), 8.0, dtype=torch.bfloat16)

    forward_extend = forward_decode


def run(backend, layer, name="forward_decode"):
    state, target = FixState(FIX), one_call.target_of(FIX, name)
    with NoSync():
        out = one_call.run(target, Backend.forward_decode, state, backend, "q", "k", "v", layer, "batch", sinks=None)
    return out, state.counters.corrections


def layer(k, v):
    return SimpleNamespace(k_scale_float=k, v_scale_float=v)


@pytest.mark.parametrize("name", ["forward_decode", "forward_extend"])
def test_values_of_fp8_get_their_scale(name):
    backend = Backend(torch.float8_e4m3fn)
    out, corrected = run(backend, layer(0.04, 0.25), name)
    assert corrected == 1 and out.dtype == torch.bfloat16 and bool((out == 2.0).all()) and backend.seen == 0.04


@pytest.mark.parametrize("name", ["forward_decode", "forward_extend"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_keys_of_16_bits_have_none(name, dtype):
    backend, made = Backend(dtype), layer(0.04, 0.25)
    out, corrected = run(backend, made, name)
    assert corrected == 1 and bool((out == 8.0).all()) and backend.seen is None and made.k_scale_float == 0.04


@pytest.mark.parametrize(
    "dtype, scales",
    [(torch.float8_e4m3fn, (0.04, 1.0)), (torch.float8_e4m3fn, (0.04, None)), (torch.bfloat16, (1.0, 0.25)),
     (torch.bfloat16, (None, 0.25)), (torch.float8_e5m2, (0.04, 0.25)), (torch.uint8, (0.04, 0.25))],
)  # fmt: skip
def test_others_pass_untouched(dtype, scales):
    backend = Backend(dtype)
    out, corrected = run(backend, layer(*scales))
    assert corrected == 0 and bool((out == 8.0).all()) and backend.seen == scales[0]


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16])
def test_after_an_error_of_the_engine_the_layer_is_as_it_was(dtype):
    made = layer(0.04, 0.25)
    with pytest.raises(MemoryError):
        run(Backend(dtype, MemoryError()), made)
    assert vars(made) == {"k_scale_float": 0.04, "v_scale_float": 0.25}
