"""sglang.kv-scales-file without an engine: which layers get what, from the scales and the backends of a model."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.kv_scales_file import wrap
from attnfix.patches.sglang.kv_scales_file.fix import FIX
from tests.support import one_call


class Backend:
    def __init__(self, model_runner, skip_prefill=False):
        self.made = True


class FlashAttentionBackend(Backend):
    def forward_decode(self, layer):
        return layer.k_scale.expand((1, 1))


class FlashInferAttnBackend(Backend):
    def forward_decode(self, layer):
        return layer.k_scale, layer.k_scale_float


class TritonAttnBackend(FlashInferAttnBackend):
    forward_decode = FlashInferAttnBackend.forward_decode


class TRTLLMHAAttnBackend(FlashInferAttnBackend):
    def forward_decode(self, layer):
        return fused_fp8_qkv_kv_cache(layer.k_scale)


class OfNoScales(Backend):
    def forward_decode(self, layer):
        return layer.scaling


class ByTheTensor(Backend):
    def forward_decode(self, layer):
        return layer.k_scale


def fused_fp8_qkv_kv_cache(scale):
    return scale.to(torch.float32)


KINDS = {
    "fa3": FlashAttentionBackend, "flashinfer": FlashInferAttnBackend, "triton": TritonAttnBackend,
    "trtllm_mha": TRTLLMHAAttnBackend,
}  # fmt: skip


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    """Loads backends by their names, of these classes or others."""

    def load(*names, **others):
        for name in names:
            file, kind = wrap.CLASSES[name]
            module = ModuleType(full := f"sglang.srt.layers.attention.{file}")
            setattr(module, kind, others.get(name, KINDS[name]))
            monkeypatch.setitem(sys.modules, full, module)

    for file, _ in wrap.CLASSES.values():
        monkeypatch.delitem(sys.modules, f"sglang.srt.layers.attention.{file}", raising=False)
    return load


class Layer(torch.nn.Module):
    def __init__(self, scale=0.25, number=None):
        super().__init__()
        self.k_scale = self.v_scale = scale
        self.k_scale_float = self.v_scale_float = number

    @property
    def scales(self):
        return self.k_scale, self.v_scale, self.k_scale_float, self.v_scale_float


def runner(*names, layers=None):
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), *(layers or [Layer()]))
    both = names * 2 if len(names) == 1 else names
    return SimpleNamespace(
        model=model, device="cpu", prefill_attention_backend_str=both[0], decode_attention_backend_str=both[1]
    )


def make(kind, model_runner):
    """How many corrections were counted."""
    state, instance = FixState(FIX), kind.__new__(kind)
    one_call.run(FIX.targets[0], Backend.__init__, state, instance, model_runner)
    assert instance.made
    return state.counters.corrections


def numbers(layer):
    return layer.scales == (0.25, 0.25, 0.25, 0.25) and isinstance(layer.k_scale, float)


def tensors(layer):
    return layer.scales == (0.25, 0.25, 0.25, 0.25) and all(
        isinstance(one, torch.Tensor) and one.dtype == torch.float32 and one.dim() == 0 for one in layer.scales[:2]
    )


def untouched(layer):
    return layer.scales == (0.25, 0.25, None, None)


@pytest.mark.parametrize(
    ("name", "complete"), [("fa3", tensors), ("flashinfer", numbers), ("triton", numbers), ("trtllm_mha", tensors)]
)
def test_layers_get_what_their_backend_reads(engine, name, complete):
    engine(name)
    made = runner(name, layers=[Layer(), Layer()])
    assert make(KINDS[name], made) == 1
    assert all(map(complete, made.model[1:]))
    assert make(KINDS[name], made) == 0  # of several draft steps, or two batches that overlap
    assert all(map(complete, made.model[1:]))


@pytest.mark.parametrize("first", ("fa3", "triton"))
def test_the_last_backend_that_is_made_decides_for_both(engine, first):
    """Whichever is made first, the module of the other is not loaded yet."""
    last = {"fa3": "triton", "triton": "fa3"}[first]
    made = runner("fa3", "triton")
    engine(first)
    assert make(KINDS[first], made) == 0
    assert untouched(made.model[1])
    engine(last)
    assert make(KINDS[last], made) == 1
    assert tensors(made.model[1])


@pytest.mark.parametrize("pair", [("fa3", "torch_native"), ("torch_native", "flashinfer"), ("fa4", "trtllm_mha")])
def test_beside_a_backend_that_leaves_scales_out_nothing_is_set(engine, pair):
    engine(*KINDS)
    made = runner(*pair)
    assert all(make(kind, made) == 0 for kind in KINDS.values())
    assert untouched(made.model[1])


def test_an_older_triton_leaves_scales_out(engine):
    engine("fa3")
    engine("triton", triton=OfNoScales)
    made = runner("fa3", "triton")
    assert make(FlashAttentionBackend, made) == make(OfNoScales, made) == 0
    assert untouched(made.model[1])


def test_a_backend_that_reads_what_the_file_leaves_is_left_alone(engine):
    engine("flashinfer", flashinfer=ByTheTensor)
    made = runner("flashinfer")
    assert make(ByTheTensor, made) == 0
    assert untouched(made.model[1])


def test_a_subclass_is_left_alone(engine):
    engine("fa3")
    made = runner("fa3")
    assert make(type("Musa", (FlashAttentionBackend,), {}), made) == 0
    assert untouched(made.model[1])


@pytest.mark.parametrize("layer", [Layer(None), Layer(torch.tensor(0.25), 0.25)])
def test_scales_of_a_checkpoint_and_none_stay_as_they_are(engine, layer):
    engine("fa3")
    before = layer.scales
    assert make(FlashAttentionBackend, runner("fa3", layers=[layer])) == 0
    assert all(one is other for one, other in zip(layer.scales, before))


def test_a_release_that_tells_the_runner_afterwards_is_asked_otherwise(engine):
    engine("fa3")
    made = runner("fa3")
    del made.prefill_attention_backend_str, made.decode_attention_backend_str
    made.server_args = SimpleNamespace(get_attention_backends=lambda: ("fa3", "fa3"))
    assert make(FlashAttentionBackend, made) == 1
    assert tensors(made.model[1])


@pytest.mark.parametrize("model", [None, SimpleNamespace(), torch.nn.Linear(1, 1)])
def test_a_runner_without_such_layers_is_left_alone(engine, model):
    engine("fa3")
    assert make(FlashAttentionBackend, SimpleNamespace(model=model)) == 0
