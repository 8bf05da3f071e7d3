"""sglang.mamba-verify-clear without an engine: verifications, prompts, and batches that say nothing of states."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba_verify_clear.fix import FIX
from tests.support import one_call


def engines(self, forward_batch):
    if not self.is_draft_worker:
        self.done.append((forward_batch.mamba_clear_indices, forward_batch.mamba_cow_src_indices))


def done(*, verifies, clear=None, source=None, drafts=False):
    """(what the engine was told to clear and to copy, how often it was corrected)"""
    state, backend = FixState(FIX), SimpleNamespace(is_draft_worker=drafts, done=[])
    mode = SimpleNamespace(is_target_verify=lambda: verifies)
    batch = SimpleNamespace(forward_mode=mode, mamba_clear_indices=clear, mamba_cow_src_indices=source)
    one_call.run(one_call.target_of(FIX, "_execute_deferred_mamba_cow_and_clear"), engines, state, backend, batch)
    assert (batch.mamba_clear_indices, batch.mamba_cow_src_indices) == (clear, source), "the batch itself is left alone"
    return backend.done, state.counters.corrections


@pytest.mark.parametrize("slots", [{"clear": [1]}, {"source": [2]}, {"clear": [1], "source": [2]}])
def test_a_verification_clears_and_copies_nothing(slots):
    assert done(verifies=True, **slots) == ([(None, None)], 1)
    assert done(verifies=True, drafts=True, **slots) == ([], 0)


def test_prompts_do_what_they_did():
    assert done(verifies=False, clear=[1], source=[2]) == ([([1], [2])], 0)
    assert done(verifies=True) == ([(None, None)], 0)
