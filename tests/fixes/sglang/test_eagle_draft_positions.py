"""sglang.eagle-draft-positions without an engine: where the positions of drafts begin."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.eagle_draft_positions.fix import FIX
from tests.support import one_call


def run(steps, positions):
    """Positions of the draft model's calls, and how many corrections were counted."""
    state, seen, worker = FixState(FIX), [], SimpleNamespace(speculative_num_steps=steps)

    def draft_forward(self, forward_batch):
        for _ in range(self.speculative_num_steps - 1):
            forward_batch.positions.add_(1)
            seen.append(forward_batch.positions.tolist())

    batch = SimpleNamespace(positions=torch.tensor(positions, dtype=torch.long))
    one_call.run(FIX.targets[0], draft_forward, state, worker, batch)
    return seen, state.counters.corrections


@pytest.mark.parametrize("positions", [[7, 1], [5, 5, 5, 5], [9, 0], []])
def test_the_first_step_has_the_positions_of_the_next_tokens(positions):
    assert run(2, positions) == ([positions], 1)
    assert run(4, positions) == ([[one + step for one in positions] for step in range(3)], 1)


def test_one_step_runs_no_draft_model_and_is_left_alone():
    assert run(1, [7, 1]) == ([], 0)
