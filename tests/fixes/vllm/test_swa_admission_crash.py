"""vllm.swa-admission-crash without an engine: which bound a step's blocks are counted by."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.swa_admission_crash.fix import FIX
from tests.support import one_call

_CAP = "_max_admission_blocks_per_request"


def manager(cap, held):
    """With pages of 4 tokens. cap: blocks, None for a layer without a window. held: by the request."""
    return SimpleNamespace(block_size=4, req_to_blocks={"a": [None] * held} if held else {}, **{_CAP: cap})


def allocate_slots(
    self, request, num_new_tokens, num_new_computed_tokens=0, new_computed_blocks=None, num_lookahead_tokens=0,
    num_external_computed_tokens=0, delay_cache_blocks=False, num_encoder_tokens=0,
):  # fmt: skip
    """The engine's, as far as it counts: None, blocks, or an error of the pool."""
    tokens = request.num_computed_tokens + num_new_tokens + num_new_computed_tokens
    counted = 0
    for one in self.coordinator.single_type_managers:
        needed, cap = -(-tokens // one.block_size), getattr(one, _CAP)
        counted += max((needed if cap is None else min(needed, cap)) - len(one.req_to_blocks.get("a", ())), 0)
    if self.fails:
        raise ValueError("the engine's own")
    return None if counted > self.free else counted


def run(computed, *managers, free=0, fails=False, **given):
    """(what the caller gets, corrections); the managers are as they were."""
    pool = SimpleNamespace(
        coordinator=SimpleNamespace(single_type_managers=managers), max_model_len=100, free=free, fails=fails
    )
    caps, state = [getattr(one, _CAP) for one in managers], FixState(FIX)
    state.fired = True
    request = SimpleNamespace(request_id="a", num_computed_tokens=computed)
    target = one_call.target_of(FIX, "allocate_slots")
    try:
        result = one_call.run(target, allocate_slots, state, pool, request, 1, **given)
    finally:
        assert [getattr(one, _CAP) for one in managers] == caps
    return result, state.counters.corrections


def test_a_request_beyond_the_bound_waits_for_a_block():
    assert run(16, manager(3, held=4)) == (None, 1)
    assert run(0, manager(3, held=0), num_new_computed_tokens=16, free=4) == (None, 1)


def test_a_block_that_is_there_is_no_correction():
    assert run(16, manager(3, held=4), free=1) == (1, 0)


@pytest.mark.parametrize("computed, held", [(15, 4), (8, 3), (11, 3)])
def test_a_request_that_needs_no_block_or_is_within_the_bound_is_left_alone(computed, held):
    assert run(computed, manager(3, held=held)) == (0, 0)


def test_layers_without_a_window_are_left_alone():
    assert run(16, manager(None, held=4)) == (None, 0)


def test_an_error_of_the_engine_passes():
    with pytest.raises(ValueError, match="the engine's own"):
        run(16, manager(3, held=4), fails=True)
