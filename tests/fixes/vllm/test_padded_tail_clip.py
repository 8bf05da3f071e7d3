"""vllm.padded-tail-clip without an engine: a padded row that was cut off, and rows that are left alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.padded_tail_clip.fix import FIX
from tests.support import one_call

BLOCK = 16


def split(self, request, num_new_tokens, num_new_local_computed_tokens=0, num_external_computed_tokens=0):
    """Cuts a chunk off at the end of its block."""
    start = request.num_computed_tokens + num_new_local_computed_tokens + num_external_computed_tokens
    return min(start + num_new_tokens, (start // BLOCK + 1) * BLOCK) - start


@pytest.mark.parametrize(
    ("tokens", "new", "cached", "status", "given", "corrections"),
    [
        (16, 4, (0, 15), "WAITING", 4, 1),
        (15, 4, (14, 0), "WAITING", 4, 1),
        (32, 3, (16, 15), "PREEMPTED", 3, 1),
        (12, 4, (0, 11), "WAITING", 4, 0),
        (17, 4, (0, 13), "WAITING", 3, 0),
        (16, 1, (0, 15), "WAITING", 1, 0),
        (40, 25, (0, 15), "WAITING", 1, 0),
        (16, 4, (15, 0), "RUNNING", 1, 0),
    ],
    ids=[
        "its block ends with the last token", "with a placeholder", "after a preemption", "the block has room",
        "its last tokens", "it is not padded", "a chunk", "it runs",
    ],
)  # fmt: skip
def test_a_padded_row_stays_whole_and_others_are_left_alone(tokens, new, cached, status, given, corrections):
    request = SimpleNamespace(num_tokens=tokens, num_computed_tokens=0, status=SimpleNamespace(name=status))
    state = FixState(FIX)
    target = one_call.target_of(FIX, "_mamba_block_aligned_split")
    assert one_call.run(target, split, state, None, request, new, *cached) == given
    assert state.counters.corrections == corrections
