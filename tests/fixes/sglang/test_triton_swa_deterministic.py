"""sglang.triton-swa-deterministic without an engine: which layers see other slots, and that the batch is as it was."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.triton_swa_deterministic.fix import FIX
from tests.support import one_call

LOC = torch.tensor([5, 3, 9])
MAPPING = torch.arange(20).roll(7)


class Pool:
    def __init__(self):
        self.layers_mapping, self.full_to_swa_index_mapping = {0: (0, False), 1: (0, True)}, MAPPING

    def translate_loc_from_full_to_swa(self, loc):
        return self.full_to_swa_index_mapping[loc].int()


def seen(layer_id, window, pool, fails=False, sampling_info=True):
    """(slots that the engine saw, corrections)"""
    batch = SimpleNamespace(out_cache_loc=LOC, token_to_kv_pool=pool, sampling_info=sampling_info)
    layer = SimpleNamespace(layer_id=layer_id, sliding_window_size=window)

    def _forward_extend_unified(self, q, o, layer, forward_batch, causal, logits_soft_cap, sinks):
        if fails:
            raise ValueError("the engine's")
        return forward_batch.out_cache_loc

    state, target = FixState(FIX), one_call.target_of(FIX, "_forward_extend_unified")
    args = object(), "q", "o", layer, batch, True, 0.0, None
    try:
        return one_call.run(target, _forward_extend_unified, state, *args), state.counters.corrections
    finally:
        assert batch.out_cache_loc is LOC and state.state != "failed"


def test_a_window_layer_sees_slots_of_its_own_pool():
    slots, corrections = seen(1, 127, Pool())
    assert slots.tolist() == MAPPING[LOC].tolist() and corrections == 1


def test_a_batch_that_the_engine_captures_a_prefill_graph_with_is_not_counted():
    slots, corrections = seen(1, 127, Pool(), sampling_info=None)
    assert slots.tolist() == MAPPING[LOC].tolist() and corrections == 0


def test_slots_that_were_translated_ahead_are_taken():
    pool = Pool()
    pool.swa_loc = torch.tensor([1, 2, 4])
    assert seen(1, 127, pool)[0] is pool.swa_loc


def no_mapping():
    pool = Pool()
    pool.full_to_swa_index_mapping = None
    return pool


@pytest.mark.parametrize(
    "layer_id, window, pool",
    [(0, -1, Pool()), (0, 127, Pool()), (1, -1, Pool()), (1, None, Pool()), (1, 127, object()), (1, 127, no_mapping())],
    ids=["full layer", "window over the full pool", "no window", "None", "one pool", "no mapping"],
)
def test_everything_else_is_left_alone(layer_id, window, pool):
    slots, corrections = seen(layer_id, window, pool)
    assert slots is LOC and corrections == 0


def test_an_error_of_the_engine_passes_and_the_batch_is_as_it_was():
    with pytest.raises(ValueError, match="the engine's"):
        seen(1, 127, Pool(), fails=True)
