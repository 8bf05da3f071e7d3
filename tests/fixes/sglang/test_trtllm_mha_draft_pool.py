"""sglang.trtllm-mha-draft-pool without an engine: which pool the backend of a draft worker takes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.trtllm_mha_draft_pool.fix import FIX
from tests.support import one_call

TARGETS, OWN = (SimpleNamespace(layers_mapping={}, name=name) for name in "ab")
PLAIN = SimpleNamespace()
UNKNOWN = SimpleNamespace()


class Backend:
    def __init__(self, model_runner, skip_prefill=False):
        pool = model_runner.token_to_kv_pool_allocator.get_kvcache()
        self.use_sliding_window_kv_pool = hasattr(pool, "layers_mapping")
        self._swa_kv_pool = pool if self.use_sliding_window_kv_pool else None


def taken(pool, draft=True, targets=TARGETS, algorithm=UNKNOWN):
    """(the pool that the backend translates for, how many corrections were counted)"""
    allocator = SimpleNamespace(get_kvcache=lambda: targets)
    runner = SimpleNamespace(
        is_draft_worker=draft, token_to_kv_pool=pool, token_to_kv_pool_allocator=allocator, spec_algorithm=algorithm
    )
    state, backend = FixState(FIX), object.__new__(Backend)
    one_call.run(FIX.targets[0], Backend.__init__, state, backend, runner)
    assert backend.use_sliding_window_kv_pool == (backend._swa_kv_pool is not None)
    return backend._swa_kv_pool, state.counters.corrections


def test_a_draft_model_is_read_through_its_own_pool():
    assert taken(PLAIN) == (None, 1)
    assert taken(OWN) == (OWN, 1)


def test_targets_and_plain_pools_stay():
    assert taken(TARGETS, draft=False) == (TARGETS, 0)
    assert taken(TARGETS) == (TARGETS, 0)
    assert taken(PLAIN, targets=PLAIN) == (None, 0)


@pytest.mark.parametrize("frozen, pool, corrections", [(True, TARGETS, 0), (False, None, 1)])
def test_drafts_that_read_the_targets_kv_keep_its_pool(frozen, pool, corrections):
    assert taken(PLAIN, algorithm=SimpleNamespace(is_frozen_kv_mtp=lambda: frozen)) == (pool, corrections)
