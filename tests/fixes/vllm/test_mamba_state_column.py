"""vllm.mamba-state-column without an engine: which column is written once more."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.mamba_state_column.fix import FIX
from tests.support import one_call

ADD = one_call.target_of(FIX, "add_request")
STATES, SHORTER = 128, 64


def add_request(self, req_index, new_req_data):
    if self._align_mode:
        self._mamba_state_idx_gpu[req_index].fill_((new_req_data.num_computed_tokens - 1) // self.cache_config.block_size)


def columns(computed, size=SHORTER, states=STATES, row=1, spec=None, align=True):
    """(columns of all rows, corrections) after a request with so many cached tokens has begun in `row`"""
    state = FixState(FIX)
    state.fired = True
    instance = SimpleNamespace(
        _align_mode=align, cache_config=SimpleNamespace(block_size=size, mamba_block_size=states), _mamba_spec=spec,
        _mamba_state_idx_gpu=torch.full((3,), 77, dtype=torch.int32),
    )  # fmt: skip
    if not align:
        del instance._mamba_spec
    one_call.run(ADD, add_request, state, instance, row, SimpleNamespace(num_computed_tokens=computed))
    return instance._mamba_state_idx_gpu.tolist(), state.counters.corrections


@pytest.mark.parametrize("computed, column", [(65, 0), (128, 0), (129, 1), (192, 1), (256, 1), (384, 2), (1024, 7)])
def test_the_column_is_that_of_a_block_of_states(computed, column):
    assert columns(computed) == ([77, column, 77], 1)


@pytest.mark.parametrize("computed", [0, 1, 63, 64])
def test_where_both_sizes_give_one_column_nothing_is_done(computed):
    assert columns(computed) == ([77, (computed - 1) // SHORTER, 77], 0)


@pytest.mark.parametrize("computed", [0, 1, 128, 129, 4096])
def test_blocks_of_one_size(computed):
    assert columns(computed, size=STATES) == ([77, (computed - 1) // STATES, 77], 0)


def test_blocks_that_are_longer_than_those_of_states():
    assert columns(256, size=256, states=128, row=0) == ([1, 77, 77], 1)


def test_the_size_of_the_group_of_layers_goes_before_that_of_the_config():
    assert columns(512, states=None, spec=SimpleNamespace(block_size=256)) == ([77, 1, 77], 1)


def test_states_that_are_not_kept_at_the_ends_of_blocks():
    assert columns(512, align=False) == ([77, 77, 77], 0)
