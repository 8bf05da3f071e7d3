"""sglang.mamba-freed-verify without an engine: rows of requests that have ended, of those that go on, and planned ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba_freed_verify.fix import FIX
from tests.support import one_call

SLOTS = torch.tensor([[3, 4], [5, 6], [7, 8]])


def engines(batch, track_positions=None):
    numbers = track_positions or [getattr(one, "kv", one).mamba_next_track_idx for one in batch.reqs]
    batch.mamba_track_indices = SLOTS.gather(1, torch.tensor(numbers).unsqueeze(1)).squeeze(1)


def slots(requests, *planned):
    """(slot of each request, how often it was corrected)"""
    state, batch = FixState(FIX), SimpleNamespace(reqs=requests)
    one_call.run(one_call.target_of(FIX, "set_mamba_track_indices_from_reqs"), engines, state, batch, *planned)
    return batch.mamba_track_indices.tolist(), state.counters.corrections


@pytest.mark.parametrize("of", [lambda one: one, lambda one: SimpleNamespace(kv=one)], ids=["request", "KV record"])
@pytest.mark.parametrize(
    "numbers, expected",
    [
        ((1, 0, 1), ([4, 5, 8], 0)),
        ((1, None, 0), ([4, 0, 7], 1)),
        ((None, None, 1), ([0, 0, 8], 1)),
        ((None,) * 3, ([0] * 3, 1)),
    ],
)
def test_a_request_that_has_ended_writes_into_nobody_s_slot(of, numbers, expected):
    holders = [SimpleNamespace(mamba_next_track_idx=number) for number in numbers]
    assert slots([of(one) for one in holders]) == expected
    assert [one.mamba_next_track_idx for one in holders] == list(numbers), "it has no number afterwards, either"


def test_a_plan_is_left_alone():
    holders = [SimpleNamespace(mamba_next_track_idx=None) for _ in SLOTS]
    assert slots(holders, [1, 1, 0]) == ([4, 6, 7], 0)
