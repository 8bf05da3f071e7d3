"""sglang.mha-draft-extend-routing without an engine: which batch the engine's function sees."""

from __future__ import annotations

from enum import IntEnum, auto
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mha_draft_extend_routing.fix import FIX
from tests.support import one_call
from tests.support.no_sync import NoSync


class Mode(IntEnum):
    """As the engine's own: an IntEnum with predicates."""

    EXTEND = auto()
    DECODE = auto()
    IDLE = auto()
    TARGET_VERIFY = auto()
    DRAFT_EXTEND = auto()
    DRAFT_EXTEND_V2 = auto()

    def is_target_verify(self):
        return self == Mode.TARGET_VERIFY

    def is_draft_extend_v2(self):
        return self == Mode.DRAFT_EXTEND_V2


class Backend:
    """Notes the batch that the engine's function gets, and what its caller sees in the caller's own meanwhile."""

    def __init__(self, own, error=None):
        self.own, self.error, self.state = own, error, FixState(FIX)

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, **kwargs):
        self.batch, self.rest = forward_batch, (q, k, v, layer, save_kv_cache, kwargs)
        self.own_mode = self.own.forward_mode
        if self.error:
            raise self.error
        return "out"


def batch_of(mode):
    return SimpleNamespace(forward_mode=mode, seq_lens=torch.tensor([3, 5]), out_cache_loc=torch.arange(4), spec_info=object())


def call(backend, batch):
    target, args = one_call.target_of(FIX, "forward_extend"), ("q", "k", "v", "layer", batch, False)
    return one_call.run(target, Backend.forward_extend, backend.state, backend, *args, sinks=1)


@given(st.sampled_from(Mode))
def test_one_mode_is_seen_as_plain_extend_and_the_callers_batch_keeps_its_own(mode):
    batch = batch_of(mode)
    before = dict(vars(batch))
    backend = Backend(batch)
    with NoSync():
        assert call(backend, batch) == "out"
    corrections = backend.state.counters.corrections
    assert backend.rest == ("q", "k", "v", "layer", False, {"sinks": 1})
    assert backend.own_mode is batch.forward_mode is mode
    assert vars(batch).keys() == before.keys() and all(vars(batch)[name] is value for name, value in before.items())
    if mode is not Mode.DRAFT_EXTEND_V2:
        assert backend.batch is batch and corrections == 0
        return
    assert backend.batch.forward_mode is Mode.EXTEND and corrections == 1
    others = before.keys() - {"forward_mode"}
    assert all(getattr(backend.batch, name) is before[name] for name in others), "tensors are shared, not copied"


def test_an_error_of_the_engine_passes_and_counts_nothing():
    batch = batch_of(Mode.DRAFT_EXTEND_V2)
    backend = Backend(batch, KeyError("engine"))
    with pytest.raises(KeyError, match="engine"):
        call(backend, batch)
    assert backend.state.counters.corrections == 0 and batch.forward_mode is Mode.DRAFT_EXTEND_V2
