"""vllm.kv-scale-float without an engine: which layers get their numbers, and what is counted."""

from __future__ import annotations

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.kv_scale_float import wrap
from attnfix.patches.vllm.kv_scale_float.fix import FIX
from tests.support import one_call

QUANTISED, AS_IT_IS = object(), None
COPIED, ONE = 2.0, 1.0


def layer_of(module, *, query=QUANTISED, cache="fp8"):
    layer = torch.nn.Module()
    layer.impl = type("Impl", (), {"__module__": module})()
    layer.kv_cache_dtype, layer.query_quant = cache, query
    for name in ("q", "k", "v"):
        setattr(layer, f"_{name}_scale_float", ONE)
    return layer


def run(name, function, *args):
    """(what the caller gets, corrections) of one call of the engine's function with that name."""
    state = FixState(FIX)
    state.fired = True
    return one_call.run(one_call.target_of(FIX, name), function, state, *args), state.counters.corrections


def load(layer, k_scale=COPIED, others=COPIED):
    """(numbers after loading, corrections) where the engine sets these tensors."""

    def engine(self, layer):
        for name in ("q", "v"):
            layer.register_buffer(f"_{name}_scale", torch.tensor(others))
        layer.register_buffer("_k_scale", torch.tensor(k_scale))
        return "the engine's"

    result, corrections = run("process_weights_after_loading", engine, object(), layer)
    assert result == "the engine's"
    return tuple(getattr(layer, f"_{name}_scale_float") for name in ("q", "k", "v")), corrections


@pytest.mark.parametrize("module", [wrap.FLASHINFER, wrap.AITER])
def test_a_backend_that_multiplies_by_numbers_gets_them(module):
    assert load(layer_of(module), 0.25) == ((COPIED, 0.25, COPIED), 1)


def test_of_a_scale_for_each_head_the_largest():
    assert load(layer_of(wrap.FLASHINFER), [0.25, 0.5])[0] == (COPIED, 0.5, COPIED)


@pytest.mark.parametrize("name", ["triton_attn", "rocm_attn", "mla.cutlass_mla", "mla.flashinfer_mla", "flash_attn"])
def test_a_backend_that_reads_tensors_or_refuses_is_left_alone(name):
    assert load(layer_of(f"vllm.v1.attention.backends.{name}"), 0.25) == ((ONE, ONE, ONE), 0)


def test_a_backend_of_somebody_else_with_that_name_is_left_alone():
    assert load(layer_of("somewhere.flashinfer"), 0.25) == ((ONE, ONE, ONE), 0)


def test_a_layer_without_a_backend_is_left_alone():
    layer = layer_of(wrap.FLASHINFER)
    del layer.impl
    assert load(layer, 0.25) == ((ONE, ONE, ONE), 0)


@pytest.mark.parametrize("cache", ["auto", "bfloat16", "fp8_ds_mla", "fp8_e5m2", "nvfp4"])
def test_a_cache_that_is_not_divided_by_the_scales_keeps_the_numbers(cache):
    assert load(layer_of(wrap.FLASHINFER, cache=cache), 0.25) == ((ONE, ONE, ONE), 0)


def test_a_query_that_is_not_quantised_keeps_its_number():
    assert load(layer_of(wrap.FLASHINFER, query=AS_IT_IS), 0.25) == ((ONE, 0.25, COPIED), 1)


def test_aiter_takes_the_tensors_where_queries_are_not_quantised():
    assert load(layer_of(wrap.AITER, query=AS_IT_IS), 0.25) == ((ONE, ONE, ONE), 0)


@pytest.mark.parametrize("query", [QUANTISED, AS_IT_IS])
def test_numbers_that_are_right_are_no_correction(query):
    layer = layer_of(wrap.FLASHINFER, query=query)
    assert load(layer, ONE, ONE) == ((ONE, ONE, ONE), 0)
    assert not hasattr(layer._k_scale, wrap.IN_NUMBER)


def test_want_of_memory_while_a_model_is_loaded_leaves_no_layer_behind_the_others(monkeypatch):
    """With the first layer corrected and the others not, the pages of the first would be multiplied twice."""
    state, scales = FixState(FIX), torch.tensor(COPIED)

    def process_weights_after_loading(self, layer):
        layer._q_scale = layer._k_scale = layer._v_scale = scales

    target = one_call.target_of(FIX, "process_weights_after_loading")
    load_one = one_call.wrapper(target, process_weights_after_loading, state).function
    first, second = layer_of(wrap.FLASHINFER), layer_of(wrap.FLASHINFER)
    load_one(object(), first)
    monkeypatch.setattr(wrap, "largest", lambda scale: (_ for _ in ()).throw(torch.OutOfMemoryError("CUDA out of memory")))
    with pytest.raises(torch.OutOfMemoryError):
        load_one(object(), second)
    assert state.armed and first._k_scale_float == COPIED


def dequantised(k_scale, v_scale):
    """(scales that the engine's function gets, corrections)."""

    def engine(kv_cache, block_tables_prefill, k_scale, v_scale, dequant_dtype):
        return kv_cache, block_tables_prefill, k_scale, v_scale, dequant_dtype

    given = "cache", "tables", k_scale, v_scale, torch.bfloat16
    result, corrections = run("trtllm_prefill_attn_kvfp8_dequant", engine, *given)
    assert (result[:2], result[4]) == (given[:2], given[4])
    return [float(scale) for scale in result[2:4]], corrections


def test_pages_are_copied_as_they_are_where_the_numbers_say_the_scales():
    layer = layer_of(wrap.FLASHINFER, query=AS_IT_IS)
    load(layer, 0.25)
    assert dequantised(layer._k_scale, layer._v_scale) == ([1.0, 1.0], 1)


def test_a_reloaded_layer_whose_numbers_were_right_already_has_its_pages_copied_too():
    layer = layer_of(wrap.FLASHINFER, query=AS_IT_IS)
    load(layer, 0.25)
    load(layer, 0.25)  # new tensors
    assert dequantised(layer._k_scale, layer._v_scale) == ([1.0, 1.0], 1)


def test_pages_of_other_layers_are_dequantised_by_the_engine():
    layer = layer_of(wrap.FLASHINFER)
    load(layer, 0.25)
    assert dequantised(layer._k_scale, layer._v_scale) == ([0.25, COPIED], 0)
