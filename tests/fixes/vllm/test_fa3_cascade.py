"""vllm.fa3-cascade without an engine: what both launches of a cascade are told, and which calls are left alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.fa3_cascade.fix import FIX
from tests.support import one_call

FORWARD = one_call.target_of(FIX, "forward")
SINKS = "sinks"


def flash_attn_varlen_func(q, causal, **launch):
    if q is None:
        raise RuntimeError("the engine's")
    return causal, launch


def cascade_attention(query):
    return flash_attn_varlen_func(q=query, causal=False, k="k"), flash_attn_varlen_func(q=query, causal=True, k="k")


def engine_forward(self, layer, query, key, value, kv_cache, attn_metadata, output=None):
    if attn_metadata is None or not attn_metadata.use_cascade:
        return flash_attn_varlen_func(q=query, causal=True, num_splits="its own")
    return cascade_attention(query)


def forward(sinks=None, splits=0, cascade=True, query="q", profiling=False):
    """(what the launches got, corrections)"""
    state = FixState(FIX)
    state.fired = True
    impl = SimpleNamespace() if sinks == "no such attribute" else SimpleNamespace(sinks=sinks)
    metadata = None if profiling else SimpleNamespace(use_cascade=cascade, max_num_splits=splits)
    result = one_call.run(FORWARD, engine_forward, state, impl, "layer", query, *"kvc", metadata)
    return result, state.counters.corrections


def test_sinks_go_to_the_prefix_alone():
    assert forward(SINKS) == (((False, {"k": "k", "s_aux": SINKS}), (True, {"k": "k"})), 1)


def test_both_launches_are_told_the_number_of_splits():
    assert forward(splits=32) == (((False, {"k": "k", "num_splits": 32}), (True, {"k": "k", "num_splits": 32})), 1)


def test_both_at_once():
    prefix, rest = forward(SINKS, 16)[0]
    assert prefix == (False, {"k": "k", "num_splits": 16, "s_aux": SINKS}) and rest == (True, {"k": "k", "num_splits": 16})


@pytest.mark.parametrize("call", [{}, {"sinks": "no such attribute"}])
def test_a_cascade_that_lacks_nothing_is_the_engines(call):
    assert forward(**call) == (((False, {"k": "k"}), (True, {"k": "k"})), 0)


@pytest.mark.parametrize("call", [{"cascade": False}, {"profiling": True}])
def test_without_a_cascade_nothing_is_added(call):
    assert forward(SINKS, 32, **call) == ((True, {"num_splits": "its own"}), 0)


def test_a_kernel_that_refuses_sinks_leaves_the_engines_launch(monkeypatch):
    """Such as FlashAttention built without them: the cascade is the engine's own, and the fix is given up."""

    def refuses(q, causal, k):
        return causal, {"k": k}

    monkeypatch.setitem(globals(), "flash_attn_varlen_func", refuses)
    state = FixState(FIX)
    function = one_call.wrapper(FORWARD, engine_forward, state).function
    metadata = SimpleNamespace(use_cascade=True, max_num_splits=0)
    result = function(SimpleNamespace(sinks=SINKS), "layer", "q", *"kvc", metadata)
    assert result == ((False, {"k": "k"}), (True, {"k": "k"}))
    assert state.state == "failed" and "s_aux" in state.reason and state.counters.corrections == 0


def test_the_engines_names_are_as_they_were():
    forward(SINKS, 32)
    assert cascade_attention("q") == ((False, {"k": "k"}), (True, {"k": "k"}))


def test_an_error_of_the_engine_passes():
    with pytest.raises(RuntimeError, match="the engine's"):
        forward(SINKS, query=None)
