"""vllm.quantized-mla-context without an engine: the dtype, and that nobody but the loop is shown it."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.fix import Target
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.quantized_mla_context import wrap
from attnfix.patches.vllm.quantized_mla_context.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "_compute_prefill_context")
WORKSPACE = torch.float16
METADATA = SimpleNamespace(prefill=SimpleNamespace(chunked_context=SimpleNamespace(workspace=torch.empty(0, dtype=WORKSPACE))))
NOT_ASKED, ASKED, SPARES_UINT8 = ("view",), ("view", "weight"), ("view", "weight", "uint8")


class Layer(torch.nn.Module):
    """A linear layer of bfloat16; `stored` is the dtype of its weight, None for one under another name."""

    params_dtype = torch.bfloat16

    def __init__(self, stored):
        super().__init__()
        held = torch.nn.Parameter(torch.ones(4).to(stored or torch.int32), requires_grad=False)
        self.register_parameter("weight" if stored else "qweight", held)

    def forward(self, latent):
        return latent, getattr(self, "weight", None)


class Engine:
    """The attention layer. `_chunk` is a method that its constructor bound, as up to 0.20.2."""

    def __init__(self, stored):
        self.kv_b_proj = Layer(stored)
        self.bound = self._chunk

    def loop(self, q, kv_c_and_k_pe_cache, attn_metadata, k_scale):
        latent, weight = self.kv_b_proj(q.to(self.kv_b_proj.weight.dtype))
        return latent.dtype, weight, self.bound()

    def loop_of_ranks(self, q, kv_c_and_k_pe_cache, attn_metadata, k_scale):
        return self.kv_b_proj(q)

    def failing(self, q, kv_c_and_k_pe_cache, attn_metadata, k_scale):
        raise ValueError(f"{self.kv_b_proj.weight.dtype} is not taken")

    def _chunk(self):
        return self


ARGS = (torch.ones(4, dtype=WORKSPACE), None, METADATA, None)


def new_state():
    state = FixState(FIX)
    state.fired = True
    return state


def call(engine, function):
    """(result, corrections counted)"""
    state = new_state()
    return one_call.run(TARGET, function, state, engine, *ARGS), state.counters.corrections


@pytest.mark.parametrize(
    ("stored", "names", "expected"),
    [
        (None, ASKED, torch.bfloat16),
        (None, NOT_ASKED, None),
        (torch.int32, SPARES_UINT8, torch.bfloat16),
        (torch.int8, ASKED, torch.bfloat16),
        (torch.uint8, ASKED, WORKSPACE),
        (torch.uint8, SPARES_UINT8, None),
        (torch.bfloat16, ASKED, None),
        (torch.float32, SPARES_UINT8, None),
        (torch.float8_e4m3fn, ASKED, None),
    ],
)
def test_the_dtype(stored, names, expected):
    assert wrap.input_dtype(Layer(stored), METADATA, names) is expected


class OfItsOwn(torch.nn.Module):
    @property
    def weight(self):
        return self.packed


class Overriding(torch.nn.Parameter):
    """As most of vLLM's parameters: every function of torch asks it first."""

    asked = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.asked += 1
        return super().__torch_function__(function, types, args, kwargs or {})


def layer_with(kind):
    layer, weight = OfItsOwn() if kind == "property" else torch.nn.Module(), torch.ones(2, dtype=torch.int8)
    if kind == "parameter":
        layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    elif kind == "overriding":
        layer.weight = Overriding(weight, requires_grad=False)
    elif kind == "no parameter":
        layer.register_parameter("weight", None)
    elif kind == "buffer":
        layer.register_buffer("weight", weight)
    elif kind == "attribute":
        vars(layer)["weight"] = weight
    layer.packed = torch.ones(3, dtype=torch.uint8)
    return layer


@pytest.mark.parametrize("kind", ["parameter", "overriding", "no parameter", "buffer", "attribute", "property", "none"])
def test_the_dtype_is_that_of_the_weight_that_torch_finds(kind):
    layer = layer_with(kind)
    asked = Overriding.asked
    found = wrap.stored_dtype(layer)
    assert Overriding.asked == asked  # it would take ten times as long
    weight = getattr(layer, "weight", None)
    assert found is (None if weight is None else weight.dtype)
    assert (Overriding.asked > asked) is (kind == "overriding")


def test_a_weight_that_is_changed_under_the_layer_is_seen():
    engine = Engine(torch.bfloat16)
    assert call(engine, Engine.loop)[1] == 0
    engine.kv_b_proj.weight = torch.nn.Parameter(torch.ones(4, dtype=torch.int32), requires_grad=False)
    assert call(engine, Engine.loop)[1] == 1


@pytest.mark.parametrize("stored", [None, torch.int32, torch.uint8])
def test_the_loop_alone_is_shown_it(stored):
    engine = Engine(stored)
    before = dict(vars(engine))
    (dtype, weight, bound_to), corrections = call(engine, Engine.loop)
    assert dtype is (WORKSPACE if stored == torch.uint8 else torch.bfloat16) and corrections == 1
    assert weight is getattr(engine.kv_b_proj, "weight", None)  # what the linear method reads
    assert bound_to is engine and vars(engine) == before
    assert {name for name, _ in engine.kv_b_proj.named_parameters()} == {"weight" if stored else "qweight"}


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float8_e4m3fn])
def test_a_floating_weight_is_left_to_the_engine(stored):
    engine = Engine(stored)
    (dtype, _, bound_to), corrections = call(engine, Engine.loop)
    assert dtype is stored and bound_to is engine and corrections == 0


def test_a_loop_that_does_not_ask_is_left_alone():
    engine = Engine(None)
    assert call(engine, Engine.loop_of_ranks)[1] == 0


def test_behind_another_correction_the_engine_runs_as_it_is():
    def another(call, instance):
        return call()

    other, state = new_state(), new_state()
    wrapper = one_call.wrapper(Target(another, paths=TARGET.paths), Engine.loop, other)
    state.armed = True
    wrapper.add(state, TARGET.correct, TARGET.needed)
    dtype, _, _ = wrapper.function(Engine(torch.int32), *ARGS)
    assert dtype is torch.int32 and state.counters.corrections == 0 and state.armed and other.counters.calls == 1


def test_an_error_of_the_engine_passes_and_leaves_nothing():
    engine = Engine(None)
    before = dict(vars(engine))
    with pytest.raises(ValueError, match=r"torch\.bfloat16 is not taken"):
        call(engine, Engine.failing)
    assert vars(engine) == before and not hasattr(engine.kv_b_proj, "weight")


def test_another_thread_sees_the_layer_as_it_is():
    """Two micro-batches share their layers: one is inside the loop, the other looks at the layer."""
    engine, inside, seen = Engine(None), threading.Event(), []

    def look():
        inside.wait()
        seen.append((hasattr(engine.kv_b_proj, "weight"), type(engine.kv_b_proj)))

    thread = threading.Thread(target=look)
    thread.start()

    def bound():
        inside.set()
        thread.join()

    engine.bound = bound
    assert call(engine, Engine.loop)[1] == 1
    assert seen == [(False, Layer)]


def test_it_is_the_innermost_correction_of_its_targets():
    """Around another one it could not run the engine's own loop."""
    from attnfix.patches.catalogue import FIXES

    loops = {place for target in FIX.targets for place in target.code_paths}
    sharing = [fix for fix in FIXES if loops & {place for target in fix.targets for place in target.witnesses}]
    assert sharing[0] is FIX and len(sharing) > 1
