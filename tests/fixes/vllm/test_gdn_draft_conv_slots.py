"""vllm.gdn-draft-conv-slots without an engine: slots that are copied, and those that stay as they are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.gdn_draft_conv_slots.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "build")
TABLE = torch.tensor([[3, 4], [7, 8], [5, 6]], dtype=torch.int32)


def build(self, common_prefix_len, common_attn_metadata, num_accepted_tokens=None, num_draft_tokens=None, fast_build=False):
    return common_attn_metadata.built


def step(slots, prefills, longest, speculates=True):
    """What the builder gives for requests with these slots, and corrections."""
    built = SimpleNamespace(non_spec_state_indices_tensor=slots, num_prefills=prefills)
    requests = 1 if slots is None else len(slots)
    batch, state = SimpleNamespace(num_reqs=requests, max_query_len=longest, built=built), FixState(FIX)
    found = one_call.run(TARGET, build, state, SimpleNamespace(use_spec_decode=speculates), 0, batch)
    return found.non_spec_state_indices_tensor, state.counters.corrections


@pytest.mark.parametrize("rows", [2, 3])
def test_slots_of_several_prompts_are_copied(rows):
    slots, corrections = step(TABLE[:rows, 0], prefills=1, longest=9)
    assert slots.tolist() == [3, 7, 5][:rows] and slots.stride() == (1,) and corrections == 1


@pytest.mark.parametrize(
    "slots, prefills, longest, speculates",
    [(TABLE[:, 0], 0, 1, True), (TABLE[:1, 0], 1, 9, True), (TABLE[:, 0].clone(), 2, 9, True), (TABLE[:, 0], 2, 9, False)],
)
def test_other_steps_are_left_alone(slots, prefills, longest, speculates):
    found, corrections = step(slots, prefills, longest, speculates)
    assert found is slots and corrections == 0


def test_a_step_of_verified_drafts_alone_has_no_such_slots():
    state, built = FixState(FIX), SimpleNamespace(non_spec_state_indices_tensor=None, num_prefills=0)
    batch = SimpleNamespace(num_reqs=2, max_query_len=4, built=built)
    assert one_call.run(TARGET, build, state, SimpleNamespace(use_spec_decode=True), 0, batch) is built
    assert state.counters.corrections == 0
