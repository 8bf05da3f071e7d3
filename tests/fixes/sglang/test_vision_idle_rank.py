"""sglang.vision-idle-rank without an engine: which batches get three rows of positions, and which are left alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.vision_idle_rank.fix import FIX
from tests.support import one_call

NEW, OLD = SimpleNamespace(model_config=SimpleNamespace(model_is_mrope=True)), SimpleNamespace(model_is_mrope=True)
PLAIN = SimpleNamespace(model_config=SimpleNamespace(model_is_mrope=False))


def pad_inputs_to_size(self, model_runner, num_tokens, bs):
    if self.mrope_positions is not None:
        missing = num_tokens - self.mrope_positions.shape[1]
        self.mrope_positions = torch.cat([self.mrope_positions, self.mrope_positions.new_zeros(3, missing)], 1)


def padded(runner, tokens, real=0, positions=None):
    batch, state = SimpleNamespace(positions=torch.arange(real), mrope_positions=positions), FixState(FIX)
    one_call.run(one_call.target_of(FIX, "_pad_inputs_to_size"), pad_inputs_to_size, state, batch, runner, tokens, tokens)
    return batch.mrope_positions, state.counters.corrections


@pytest.mark.parametrize("runner", [NEW, OLD])
def test_padding_of_an_idle_rank_has_positions(runner):
    found, corrections = padded(runner, 4)
    assert corrections == 1 and found.dtype == torch.int64 and torch.equal(found, torch.zeros(3, 4, dtype=torch.int64))


@pytest.mark.parametrize("runner, tokens, real", [(PLAIN, 4, 0), (NEW, 0, 0), (NEW, 4, 2)])
def test_a_batch_without_positions_is_left_alone(runner, tokens, real):
    assert padded(runner, tokens, real) == (None, 0)


def test_positions_of_requests_stay():
    found, corrections = padded(NEW, 4, real=2, positions=torch.arange(6).view(3, 2))
    assert corrections == 0 and torch.equal(found[:, :2], torch.arange(6).view(3, 2))
