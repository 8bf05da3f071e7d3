"""sglang.mamba-abort-leak without an engine: prompts that get into a batch, and prompts that have to wait."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba_abort_leak.fix import FIX
from tests.support import one_call


class MambaRadixCache:
    def __init__(self):
        self.freed = []
        self.req_to_token_pool = SimpleNamespace(
            mamba_pool=SimpleNamespace(free=lambda slots: self.freed.extend(slots.tolist()))
        )


class RadixCache(MambaRadixCache):
    pass


def add_one_req(self, req, has_chunked_req, truncation_align_size=None):
    if req.fits:
        self.can_run_list.append(req)
    return "continue" if req.fits else "no token"


@pytest.mark.parametrize("tree", [MambaRadixCache, RadixCache])
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("state", [None, 7])
@pytest.mark.parametrize("fits", [True, False])
def test_a_prompt_that_waits_gives_its_state_back(fits, state, before, tree):
    slot = None if state is None else torch.tensor(state)
    cache, req, known = tree(), SimpleNamespace(fits=fits, mamba_pool_idx=slot), FixState(FIX)
    adder = SimpleNamespace(tree_cache=cache, can_run_list=[SimpleNamespace() for _ in range(before)])
    assert one_call.run(FIX.targets[0], add_one_req, known, adder, req, False) == ("continue" if fits else "no token")
    freed = [state] if state is not None and not fits and tree is MambaRadixCache else []
    assert cache.freed == freed and known.counters.corrections == len(freed)
    assert req.mamba_pool_idx is (None if freed else slot)
