"""sglang.unified-kv-last-page without an engine: blocks of the buffers that a pool asks for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.unified_kv_last_page.fix import FIX
from tests.support import one_call


def DeepSeekV4UnifiedKVPool(*, num_blocks, num_slots):
    return SimpleNamespace(num_blocks=num_blocks, num_slots=num_slots)


class Pool:
    def __init__(self, c128_size, page_size, unified):
        self.unified_kv_pool = DeepSeekV4UnifiedKVPool(num_blocks=c128_size, num_slots=2) if unified else None


@pytest.mark.parametrize("page_size, more", [(256, 2), (128, 1), (64, 1)])
def test_a_pool_has_the_blocks_of_one_page_more(page_size, more):
    state, pool = FixState(FIX), object.__new__(Pool)
    one_call.run(one_call.target_of(FIX, "__init__"), Pool.__init__, state, pool, 10, page_size, True)
    assert pool.unified_kv_pool == SimpleNamespace(num_blocks=10 + more, num_slots=2) and state.counters.corrections == 1


def test_separate_buffers_are_left_alone():
    state, pool = FixState(FIX), object.__new__(Pool)
    one_call.run(one_call.target_of(FIX, "__init__"), Pool.__init__, state, pool, 10, 256, unified=False)
    assert pool.unified_kv_pool is None and state.counters.corrections == 0
