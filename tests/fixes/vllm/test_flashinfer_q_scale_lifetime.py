"""vllm.flashinfer-q-scale keeps no tensor of a call: its wrappers are gone with the call, without Python's collector."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.flashinfer_q_scale.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "forward")


class Impl:
    dcp_world_size, scale = 1, 0.5

    def forward(self, layer, query, attn_metadata):
        if query is None:
            raise RuntimeError("the engine's own")
        return attn_metadata.prefill.wrapper.run(query, None, q_scale=0.25)


def metadata():
    part = SimpleNamespace(wrapper=SimpleNamespace(run=lambda query, cache, q_scale: query * q_scale))
    return SimpleNamespace(prefill=part, decode=SimpleNamespace())


def test_a_call_leaves_nothing_behind():
    gc.disable()
    try:
        layer, query = SimpleNamespace(_q_scale_float=0.25, _k_scale_float=1.0), torch.ones(3)
        gone, state = weakref.ref(query), FixState(FIX)
        out = one_call.run(TARGET, Impl.forward, state, Impl(), layer=layer, query=query, attn_metadata=metadata())
        assert out.tolist() == [1.0] * 3 and state.counters.rows == 3
        del query
        assert gone() is None
        with pytest.raises(RuntimeError, match="own"):
            one_call.run(TARGET, Impl.forward, FixState(FIX), Impl(), layer=layer, query=None, attn_metadata=metadata())
    finally:
        gc.enable()
