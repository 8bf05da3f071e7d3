"""vllm.int8-mla-context without an engine: which weights get inputs of another dtype than the engine names."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.int8_mla_context.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "_get_kv_b_proj_input_dtype")


def engine(kv_b_proj, use_fp8_prefill):
    """As the engine's, of 0.28.0."""
    weight = getattr(kv_b_proj, "weight", None)
    dtype = weight.dtype if weight is not None else kv_b_proj.params_dtype
    return {torch.int32: kv_b_proj.params_dtype, torch.uint8: None}.get(dtype, dtype)


def decide(dtype):
    """(dtype of the input, corrections) for a layer made for bfloat16 that keeps a weight of `dtype`; None: none of its own."""
    layer = torch.nn.Module()
    layer.params_dtype = torch.bfloat16
    if dtype is not None:
        layer.register_parameter("weight", torch.nn.Parameter(torch.zeros(2, 2, dtype=dtype), requires_grad=False))
    state = FixState(FIX)
    state.fired = True
    return one_call.run(TARGET, engine, state, layer, False), state.counters.corrections


def test_int8_gets_what_the_layer_was_made_for():
    assert decide(torch.int8) == (torch.bfloat16, 1)


@pytest.mark.parametrize(
    "stored, named",
    [(torch.bfloat16, torch.bfloat16), (torch.float8_e4m3fn, torch.float8_e4m3fn), (torch.int32, torch.bfloat16),
     (torch.uint8, None), (None, torch.bfloat16)],
)  # fmt: skip
def test_what_the_engine_gets_right_stays(stored, named):
    assert decide(stored) == (named, 0)


def test_a_layer_without_parameters_of_torch():
    layer = SimpleNamespace(params_dtype=torch.float16, weight=SimpleNamespace(dtype=torch.int8))
    state = FixState(FIX)
    state.fired = True
    assert one_call.run(TARGET, engine, state, layer, use_fp8_prefill=True) is torch.float16
