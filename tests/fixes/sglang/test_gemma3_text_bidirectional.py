"""sglang.gemma3-text-bidirectional without an engine: which layers are causal for a call, and which calls are left alone."""

from __future__ import annotations

import sys
from enum import Enum
from types import ModuleType, SimpleNamespace

import pytest

from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.gemma3_text_bidirectional.facts import FACTS
from attnfix.patches.sglang.gemma3_text_bidirectional.fix import FIX
from tests.support import one_call


class Kind(Enum):
    DECODER = "decoder"
    DECODER_BIDIRECTIONAL = "decoder_bidirectional"


def engine(self, q, k, v, layer, forward_batch, save_kv_cache=True):
    if q is None:
        raise ValueError("the engine's")
    return layer.attn_type


@pytest.fixture
def config(monkeypatch):
    found = SimpleNamespace(model_type="gemma3_text", use_bidirectional_attention=False)
    module = ModuleType("sglang.srt.server_args")
    args = SimpleNamespace(get_model_config=lambda: SimpleNamespace(hf_text_config=found))
    module.get_global_server_args = lambda: args
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return found


def backend(allowed=True, mask=None):
    return SimpleNamespace(allow_bidirectional_attention_in_extend=allowed, forward_metadata=SimpleNamespace(custom_mask=mask))


def run(instance, kind=Kind.DECODER_BIDIRECTIONAL, q=0, state=None):
    """(the layer's kind for the call, how many corrections were counted)"""
    state, layer = state or FixState(FIX), SimpleNamespace(attn_type=kind)
    try:
        return one_call.run(FIX.targets[0], engine, state, instance, q, None, None, layer, None), state.counters.corrections
    finally:
        assert layer.attn_type is kind


def test_text_is_read_causally(config):
    assert run(backend()) == (Kind.DECODER, 1)


@pytest.mark.parametrize("instance", [backend(allowed=False), backend(mask="of images")])
def test_chunks_graphs_and_images_are_left_alone(config, instance):
    assert run(instance) == (Kind.DECODER_BIDIRECTIONAL, 0)


def test_so_are_layers_that_are_causal(config):
    assert run(backend(), Kind.DECODER) == (Kind.DECODER, 0)


@pytest.mark.parametrize("known", [{"use_bidirectional_attention": True}, {"model_type": "hrm_text"}])
def test_so_are_models_that_read_in_both_directions(config, known):
    vars(config).update(known)
    assert run(backend()) == (Kind.DECODER_BIDIRECTIONAL, 0)


def test_an_error_of_the_engine_leaves_the_layer_its_kind(config):
    state = FixState(FIX)
    with pytest.raises(ValueError, match="the engine's"):
        run(backend(), q=None, state=state)
    assert state.armed


def test_embedding_gemma_is_no_gemma_that_writes_text():
    config = {"architectures": ["Gemma3ForCausalLM"], "use_bidirectional_attention": True}
    fact = FACTS["Gemma 3 that writes text"](Deployment("sglang", config=config))
    assert fact.values == ("off",)
