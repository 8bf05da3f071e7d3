"""sglang.mamba-pool-full without an engine: how many cached states are evicted for a batch of prompts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba_pool_full.fix import FIX
from tests.support import one_call


class MambaRadixCache:
    def __init__(self):
        self.evicted = []
        self.evict_mamba = self.evicted.append


class RadixCache(MambaRadixCache):
    pass


@pytest.mark.parametrize("states, free, evicted", [
    ((None, None, None), 1, [2]),
    ((None, 4, None), 1, [1]),
    ((None, 4, None), 2, []),
    ((4, 5), 0, []),
    ((None,), 0, [1]),
])  # fmt: skip
@pytest.mark.parametrize("tree", [MambaRadixCache, RadixCache])
def test_as_many_states_are_evicted_as_prompts_lack(states, free, evicted, tree):
    cache, state = tree(), FixState(FIX)
    pool = SimpleNamespace(mamba_pool=SimpleNamespace(available_size=lambda: free))
    reqs = [SimpleNamespace(mamba_pool_idx=one) for one in states]
    batch = SimpleNamespace(tree_cache=cache, req_to_token_pool=pool, reqs=reqs)
    one_call.run(FIX.targets[0], lambda self: None, state, batch)
    expected = evicted if tree is MambaRadixCache else []
    assert cache.evicted == expected and state.counters.corrections == len(expected)
