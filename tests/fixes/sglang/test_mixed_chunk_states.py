"""sglang.mixed-chunk-states without an engine: what a batch of prompts says of its states when others have joined it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mixed_chunk_states.fix import FIX
from attnfix.patches.sglang.mixed_chunk_states.wrap import UNTRACKED
from tests.support import one_call

(TARGET,) = FIX.targets


def engine(self, running_batch):
    self.reqs = self.reqs + running_batch.reqs
    vars(self).update(dict.fromkeys(UNTRACKED))


def request(tracked, former):
    kept = SimpleNamespace(mamba_last_track_seqlen=64 if tracked else None)
    return kept if former else SimpleNamespace(kv=kept)


def mixed(mask, *, lists=False, former=False):
    """(the batch afterwards, how often it was corrected)"""
    batch = SimpleNamespace(reqs=[request(tracked, former) for tracked in mask or (False, False)], **dict.fromkeys(UNTRACKED))
    if mask is not None:
        batch.mamba_track_mask = torch.tensor(mask)
        batch.mamba_track_indices, batch.mamba_track_seqlens = torch.tensor([5, 9]), torch.tensor([70, -1])
    if lists:
        batch.mamba_prefill_track_mask_cpu, batch.mamba_track_seqlens_cpu = list(mask), [70, -1]
    state = FixState(FIX)
    one_call.run(TARGET, engine, state, batch, SimpleNamespace(reqs=[object()] * 3))
    return batch, state.counters.corrections


@pytest.mark.parametrize("former", [False, True])
@pytest.mark.parametrize("lists", [False, True])
def test_prompts_keep_their_states_and_the_others_keep_none(lists, former):
    batch, corrections = mixed([True, False], lists=lists, former=former)
    assert batch.mamba_track_indices.tolist() == [5, 9, -1, -1, -1] and corrections == 1
    assert batch.mamba_track_mask.tolist() == [True, False, False, False, False] and batch.mamba_track_mask.dtype == torch.bool
    assert batch.mamba_track_seqlens.tolist() == [70, -1, -1, -1, -1]
    assert batch.mamba_prefill_track_mask_cpu == ([True, False, False, False, False] if lists else None)
    assert batch.mamba_track_seqlens_cpu == ([70, -1, -1, -1, -1] if lists else None)


def test_a_batch_that_keeps_no_state_counts_as_none():
    assert mixed([False, False])[1] == 0
    batch, corrections = mixed(None)
    assert all(getattr(batch, name) is None for name in UNTRACKED) and corrections == 0
