"""vllm.flashmla-fp8-graph without an engine: which schedules keep an address, and what stands there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FAILED, FixState
from attnfix.patches.vllm.flashmla_fp8_graph.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "_build_decode")
PARTS, REQUESTS = 6, 8


def builder(fp8=True, full_graphs=True):
    """A metadata builder as the engine's `__init__` leaves it."""
    tiles, splits = torch.zeros(PARTS, 8, dtype=torch.int32), torch.zeros(REQUESTS + 1, dtype=torch.int32)
    return SimpleNamespace(
        is_fp8_kvcache=fp8,
        cg_buf_tile_scheduler_metadata=tiles if full_graphs else None,
        cg_buf_num_splits=splits if full_graphs else None,
    )


def step(tiles, splits):
    """The engine's `_build_decode` in a step whose own schedule is this."""
    made = SimpleNamespace(scheduler_metadata=SimpleNamespace(tile_scheduler_metadata=tiles, num_splits=splits))

    def build_decode(self, num_decode_tokens):
        return made

    return made, build_decode


def build(instance, tiles, splits):
    """(tile schedule, number of splits, corrections) after a step whose own schedule is this."""
    state = FixState(FIX)
    state.fired = True
    made, function = step(tiles, splits)
    schedule = made.scheduler_metadata
    assert one_call.run(TARGET, function, state, instance, num_decode_tokens=1) is made and made.scheduler_metadata is schedule
    return schedule.tile_scheduler_metadata, schedule.num_splits, state.counters.corrections


def schedule(value, requests=3):
    return torch.full((PARTS, 8), value, dtype=torch.int32), torch.full((requests + 1,), value, dtype=torch.int32)


def test_every_step_writes_to_the_addresses_of_the_first():
    instance = builder()
    tiles, splits, fired = build(instance, *schedule(1))
    again_tiles, again_splits, _ = build(instance, *schedule(2))
    assert fired == 1
    assert (tiles.data_ptr(), splits.data_ptr()) == (again_tiles.data_ptr(), again_splits.data_ptr())
    assert tiles.shape == (PARTS, 8) and splits.shape == (4,)
    assert (tiles == 2).all() and (splits == 2).all(), "what the graph of the first step reads now"


def test_batches_of_several_sizes_share_the_buffers():
    instance = builder()
    _, many, _ = build(instance, *schedule(1, REQUESTS))
    _, few, _ = build(instance, *schedule(2, 1))
    assert len(many) == REQUESTS + 1 and few.data_ptr() == many.data_ptr()
    assert many.tolist() == [2, 2] + [1] * (REQUESTS - 1), "each step writes all that its own graph reads"


@pytest.mark.parametrize("instance", [builder(fp8=False), builder(full_graphs=False)])
def test_without_fp8_or_full_graphs_nothing_is_copied(instance):
    tiles, splits = schedule(1)
    assert build(instance, tiles, splits) == (tiles, splits, 0)


def test_of_a_schedule_that_does_not_fit_neither_half_is_changed():
    tiles, splits = torch.zeros(PARTS, 8, dtype=torch.int32), torch.zeros(REQUESTS + 2, dtype=torch.int32)
    state, (made, function) = FixState(FIX), step(tiles, splits)
    assert one_call.wrapper(TARGET, function, state).function(builder(), num_decode_tokens=1) is made
    assert state.state == FAILED and "RuntimeError" in state.reason
    assert made.scheduler_metadata.tile_scheduler_metadata is tiles and made.scheduler_metadata.num_splits is splits
