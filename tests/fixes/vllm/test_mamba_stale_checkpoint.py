"""vllm.mamba-stale-checkpoint without an engine: which plans of a batch are left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.mamba_stale_checkpoint.fix import FIX
from tests.support import one_call

BUILD = one_call.target_of(FIX, "build")


@dataclass
class Plan:
    """As the engine's metadata."""

    checkpoint_offsets: torch.Tensor
    state_indices: torch.Tensor
    offsets: list
    request_rows: torch.Tensor
    block_cols: torch.Tensor


def build(self, m, request_rows):
    """As the engine plans: m.planned says of each row (offset, column)."""
    if self.refuses:
        return None
    offsets, columns = map(list, zip(*(m.planned[row] for row in request_rows)))
    if not any(offsets):
        return None
    rows, cols = torch.tensor(request_rows), torch.tensor(columns)
    blocks = torch.where(cols >= 0, m.block_table_tensor[rows, cols], 0)
    return Plan(torch.tensor(offsets, dtype=torch.int32), blocks, offsets, rows, cols)


def planned(tables, plans, drafts, request_rows=None, mode="align", reserved=1, refuses=False, ends=(64,) * 4):
    """(the plan, corrections)"""
    state = FixState(FIX)
    state.fired = True
    spec = SimpleNamespace(num_prefill_checkpoint_blocks=reserved, num_speculative_blocks=drafts)
    config = SimpleNamespace(cache_config=SimpleNamespace(mamba_cache_mode=mode, hash_block_size=16))
    instance = SimpleNamespace(vllm_config=config, kv_cache_spec=spec, refuses=refuses)
    batch = SimpleNamespace(
        block_table_tensor=torch.tensor(tables, dtype=torch.int32), planned=plans, seq_lens_cpu_upper_bound=torch.tensor(ends)
    )  # fmt: skip
    rows = list(range(len(tables))) if request_rows is None else request_rows
    found = one_call.run(BUILD, build, state, instance, batch, rows)
    return found, state.counters.corrections


def offsets(*args, **more):
    plan, corrections = planned(*args, **more)
    assert corrections == 1
    return plan.checkpoint_offsets.tolist()


@pytest.mark.parametrize(
    "row, column, drafts, kept",
    [
        ([0, 1, 2, 2, 3], 2, 1, False),  # the state's by now
        ([0, 1, 2, 3, 2, 4], 2, 2, False),  # a draft's
        ([0, 0, 0, 1, 2, 3, 4, 2, 3, 4, 5], 6, 3, False),
        ([0, 0, 1, 2, 0, 2, 3], 4, 1, False),  # the null block
        ([0, 1], 0, 0, False),
        ([0, 1, 2, 3, 4], 2, 1, True),  # a draft's, which was left for it
        ([0, 1, 2, 2, 3, 4], 3, 1, True),  # a draft's that has moved to it: it stands before, too
        ([0, 5, 1], 1, 0, True),
        ([0, 5, 1, 2, 5], 1, 1, True),  # what stands behind the drafts is of nobody
    ],
)
def test_a_block_is_reserved_where_nothing_behind_it_is_the_same(row, column, drafts, kept):
    assert offsets([row], [(16, column)], drafts) == ([16] if kept else [0])


def test_each_row_is_judged_by_itself():
    tables = [[0, 1, 2, 2, 3], [0, 4, 5, 6, 7], [0, 0, 0, 8, 9], [2, 2, 2, 2, 2]]
    assert offsets(tables, [(16, 2), (32, 2), (16, 2), (0, -1)], 1) == [0, 32, 0, 0]


def test_rows_of_a_batch_that_are_no_prefills():
    tables = [[2, 2, 2, 2], [0, 1, 2, 3], [0, 2, 2, 3]]
    assert offsets(tables, [(0, -1), (16, 1), (16, 1)], 1, request_rows=[1, 2]) == [16, 0]


def test_a_row_that_ends_with_the_table():
    assert offsets([[0, 5, 1]], [(16, 1)], 1) == [16]


def test_the_hosts_copy_and_all_else_stay():
    tables, plans = [[0, 1, 2, 2, 3], [0, 4, 5, 6, 7]], [(16, 2), (32, 2)]
    plan, _ = planned(tables, plans, 1)
    stock = build(
        SimpleNamespace(refuses=False), SimpleNamespace(block_table_tensor=torch.tensor(tables), planned=plans), [0, 1]
    )
    assert plan.offsets == [16, 32] and plan.checkpoint_offsets.dtype == torch.int32
    for name in ("state_indices", "request_rows", "block_cols"):
        assert torch.equal(getattr(plan, name), getattr(stock, name))
    assert replace(plan, state_indices=plan.state_indices + 1).checkpoint_offsets.tolist() == [0, 32], "another group's blocks"


@pytest.mark.parametrize("ends, counted", [((64, 64), 1), ((64, 65), 0), ((70, 72), 0), ((63, 96), 1)])
def test_chunks_that_end_off_the_grid_are_not_counted(ends, counted):
    plan, corrections = planned([[0, 1, 2, 2], [0, 1, 2, 2]], [(0, -1), (16, 2)], 1, ends=ends)
    assert (plan.checkpoint_offsets.tolist(), corrections) == ([0, 0], counted)


@pytest.mark.parametrize(
    "more", [{"plans": [(0, -1)]}, {"refuses": True}, {"mode": "all"}, {"mode": "none"}, {"reserved": 0}], ids=str
)
def test_where_nothing_is_planned_or_kept_nothing_is_done(more):
    plans = more.pop("plans", [(16, 2)])
    plan, corrections = planned([[0, 1, 2, 2, 3]], plans, 1, **more)
    assert corrections == 0 and (plan is None or plan.checkpoint_offsets.tolist() == [16])
