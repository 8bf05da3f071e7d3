"""sglang.mamba-flush without an engine: what a flush leaves in a pool of states."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba_flush.fix import FIX
from tests.support import one_call


def clear(self):
    self.free_slots = torch.arange(4)


@pytest.mark.parametrize("windows", [1, 3])
def test_a_flush_zeroes_all_states(windows):
    conv = [torch.ones(2, 5, 3) for _ in range(windows)]
    cache = SimpleNamespace(
        conv=conv if windows > 1 else conv[0], temporal=torch.ones(2, 5, 3, 3), intermediate_ssm=torch.ones(1)
    )
    pool, state = SimpleNamespace(mamba_cache=cache, free_slots=torch.arange(1, 4), size=4), FixState(FIX)
    one_call.run(FIX.targets[0], clear, state, pool)
    assert not any(one.any() for one in [*conv, cache.temporal]) and cache.intermediate_ssm.all()
    assert pool.free_slots.tolist() == [0, 1, 2, 3] and state.counters.corrections == 1


def test_a_pool_that_keeps_no_state_is_left_alone():
    pool, state = SimpleNamespace(free_slots=torch.arange(4), size=4), FixState(FIX)
    one_call.run(FIX.targets[0], clear, state, pool)
    assert state.counters.corrections == 0
