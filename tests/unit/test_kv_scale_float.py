"""vllm.kv-scale-float without an engine: which layers get their numbers, and what is counted."""

from __future__ import annotations

from types import SimpleNamespace

import one_call
import pytest
import torch

from attnfix.compat.states import PlainCounters
from attnfix.patches.vllm.kv_scale_float import wrap


def backend(module):
    return type("Impl", (), {"__module__": f"vllm.v1.attention.backends.{module}"})()


def loaded(impl, k_scale):
    """(numbers after loading, corrections) of a layer with these scales of its keys; the others are 2."""
    layer = torch.nn.Module()
    layer.impl = impl
    for name in ("q", "k", "v"):
        setattr(layer, f"_{name}_scale_float", 1.0)

    def load(layer):
        for name in ("q", "v"):
            layer.register_buffer(f"_{name}_scale", torch.tensor(2.0))
        layer.register_buffer("_k_scale", torch.tensor(k_scale))
        return "the engine's"

    state = SimpleNamespace(counters=PlainCounters(), fired=True, confirm=None)
    assert wrap.process_weights_after_loading(one_call.call_of(load, state), None, (layer,), {}) == "the engine's"
    return tuple(getattr(layer, f"_{name}_scale_float") for name in ("q", "k", "v")), state.counters.corrections


@pytest.mark.parametrize("module", sorted(wrap.READERS))
def test_a_backend_that_multiplies_by_numbers_gets_them(module):
    assert loaded(backend(module), 0.25) == ((2.0, 0.25, 2.0), 1)


def test_of_a_scale_for_each_head_the_largest():
    assert loaded(backend("flashinfer"), [0.25, 0.5])[0] == (2.0, 0.5, 2.0)


@pytest.mark.parametrize("impl", [backend("triton_attn"), backend("mla.cutlass_mla"), backend("flash_attn"), None])
def test_a_backend_that_reads_tensors_or_refuses_is_left_alone(impl):
    assert loaded(impl, 0.25) == ((1.0, 1.0, 1.0), 0)


def test_numbers_that_are_right_are_no_correction():
    layer = SimpleNamespace(impl=backend("flashinfer"))
    for name in ("q", "k", "v"):
        setattr(layer, f"_{name}_scale", torch.tensor(0.5))
        setattr(layer, f"_{name}_scale_float", 0.5)
    state = SimpleNamespace(counters=PlainCounters(), fired=True, confirm=None)
    wrap.process_weights_after_loading(one_call.call_of(lambda layer: None, state), None, (layer,), {})
    assert state.counters.corrections == 0
