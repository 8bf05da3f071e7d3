"""vllm.gdn-launch-assert without an engine: which requests count as prefills of one token, and what is left alone."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.gdn_launch_assert import wrap
from attnfix.patches.vllm.gdn_launch_assert.fix import FIX
from tests.support import one_call

K = 3
#: Tokens of this step, drafts (-1: none), what the last step accepted
VERIFIED, ZERO, SINGLE, PREFILL, PADDED, MOVED = (K + 1, K, 2), (1, 0, 2), (1, -1, 1), (5, -1, 1), (0, -1, 1), (1, -1, 3)


@dataclasses.dataclass
class Batch:
    query_start_loc_cpu: torch.Tensor
    block_table_tensor: torch.Tensor = dataclasses.field(default_factory=lambda: torch.ones(1))

    def replace(self, **fields):
        return dataclasses.replace(self, **fields)


class Builder:
    """The engine's: counts as it does, and refuses as it does."""

    def build(self, common_prefix_len, common_attn_metadata, num_accepted_tokens=None, num_decode_draft_tokens_cpu=None):
        lens = common_attn_metadata.query_start_loc_cpu.diff()
        drafts = num_decode_draft_tokens_cpu
        if drafts is None or drafts[drafts >= 0].sum().item() == 0:
            return None
        others = lens[~(drafts >= 0)]
        decodes, empty = (others == 1).sum().item(), (others == 0).sum().item()
        assert not decodes
        starts = torch.zeros(len(others) + 1, dtype=torch.int32)
        torch.cumsum(others, dim=0, out=starts[1:])
        assert type(starts) is torch.Tensor
        return others.size(0) - empty, others.sum().item(), starts.tolist()


def build(requests, **without):
    """(what the builder returned, corrections, whether the fix is armed, whether the batch is as it was)"""
    starts = torch.tensor([0, *(r[0] for r in requests)], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    batch, known = Batch(starts), starts.clone()
    accepted, drafts = (torch.tensor([r[at] for r in requests], dtype=torch.int32) for at in (2, 1))
    named = {"num_accepted_tokens": accepted, "num_decode_draft_tokens_cpu": drafts, **without}
    state = FixState(FIX)
    function = one_call.wrapper(one_call.target_of(FIX, "build"), Builder.build, state).function
    found = function(Builder(), 0, batch, **named)
    assert batch.query_start_loc_cpu is starts and type(starts) is torch.Tensor and torch.equal(starts, known)
    return found, state.counters.corrections, state.armed


@pytest.mark.parametrize(
    "requests, prefills, starts",
    [
        ([VERIFIED, SINGLE], 1, [0, 1]), ([SINGLE, VERIFIED], 1, [0, 1]), ([SINGLE, VERIFIED, SINGLE], 2, [0, 1, 2]),
        ([VERIFIED, PREFILL, SINGLE], 2, [0, 5, 6]), ([SINGLE, ZERO, VERIFIED, PADDED], 1, [0, 1, 1]),
    ],
)  # fmt: skip
def test_one_token_is_a_prefill_beside_drafts(requests, prefills, starts):
    assert build(requests) == ((prefills, starts[-1], starts), 1, True)


@pytest.mark.parametrize(
    "requests", [[VERIFIED], [VERIFIED, PREFILL], [VERIFIED, PADDED], [VERIFIED, ZERO], [PREFILL, VERIFIED]]
)
def test_what_the_engine_takes_is_left_alone(requests):
    assert build(requests)[1:] == (0, True)


@pytest.mark.parametrize("requests", [[SINGLE], [SINGLE, PREFILL], [SINGLE, ZERO]])
def test_nothing_is_verified(requests):
    assert build(requests) == (None, 0, True)


@pytest.mark.parametrize("requests", [[VERIFIED, MOVED], [SINGLE, VERIFIED, MOVED]])
def test_a_state_in_another_block_ends_the_engine_as_before(requests):
    with pytest.raises(AssertionError):
        build(requests)


def test_capture_and_steps_without_drafts():
    assert build([SINGLE], num_accepted_tokens=None, num_decode_draft_tokens_cpu=None) == (None, 0, True)


def test_lengths_of_one_are_hidden_and_nothing_else():
    lens = torch.tensor([0, 1, 4, 5]).as_subclass(wrap.starts_without_decodes()).diff()
    for ones in (lens == 1, lens.eq(1), torch.eq(lens, 1)):
        assert not ones.any()
    assert (lens == 3).tolist() == [False, True, False] and lens.tolist() == [1, 3, 1] and lens[lens > 0].sum().item() == 5
