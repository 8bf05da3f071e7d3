"""vllm.mamba-draft-count-assert without an engine: a step that needs fewer blocks than the request has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.mamba_draft_count_assert.fix import FIX
from tests.support import one_call

#: Two drafts, blocks of 16 tokens: a block of the running state and one for each draft
DRAFTS, SIZE = 2, 16


def allocate_new_blocks(self, request_id, num_tokens, num_tokens_main_model):
    return ["stock"]


@pytest.mark.parametrize(
    "mode, held, tokens, corrected",
    [
        ("align", 4, 17, False),  # as many as it has
        ("align", 4, 33, False),  # one more
        ("align", 4, 16, True),
        ("none", 4, 16, False),
        ("all", 4, 16, False),
        ("align", 0, 16, False),  # it begins
    ],
)
def test_a_request_with_more_blocks_than_it_needs_gets_none(mode, held, tokens, corrected):
    blocks = {"a": [SimpleNamespace(is_null=False)] * held} if held else {}
    manager = SimpleNamespace(mamba_cache_mode=mode, block_size=SIZE, num_speculative_blocks=DRAFTS, req_to_blocks=blocks)
    state = FixState(FIX)
    target = one_call.target_of(FIX, "allocate_new_blocks")
    result = one_call.run(target, allocate_new_blocks, state, manager, "a", tokens + 5, tokens)
    assert result == ([] if corrected else ["stock"]) and state.counters.corrections == corrected
    assert blocks == ({"a": blocks["a"]} if held else {})


@pytest.mark.parametrize("emptied, corrected", [(0, False), (1, False), (2, False), (3, True)])
def test_a_step_whose_column_was_emptied_ends_the_engine(emptied, corrected):
    """One column for the step's state, and one for each draft."""
    blocks = {"a": [SimpleNamespace(is_null=at == emptied) for at in range(5)]}
    manager = SimpleNamespace(mamba_cache_mode="align", block_size=SIZE, num_speculative_blocks=DRAFTS, req_to_blocks=blocks)
    state = FixState(FIX)
    target = one_call.target_of(FIX, "allocate_new_blocks")
    result = one_call.run(target, allocate_new_blocks, state, manager, "a", SIZE, SIZE)
    assert result == ([] if corrected else ["stock"]) and state.counters.corrections == corrected
