"""sglang.window-deferred-chunk without an engine: a chunk that is put off, and chunks that are left alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.window_deferred_chunk.fix import FIX
from tests.support import one_call


def add_chunked_req(self, req):
    if self.rem <= 0:
        return req
    self.can_run_list.append(req)
    whole = len(req.fill_ids) <= len(req.prefix_indices) + self.rem
    req.fill_ids = req.fill_ids[: len(req.prefix_indices) + self.rem]
    return None if whole else req


@pytest.mark.parametrize(
    "rem, hybrid, kept, corrections", [(0, True, 3, 1), (4, True, 7, 0), (20, True, 10, 0), (0, False, 10, 0)]
)
def test_a_prompt_whose_chunk_is_put_off_ends_where_it_is_computed(rem, hybrid, kept, corrections):
    adder = SimpleNamespace(rem=rem, is_hybrid_swa=hybrid, can_run_list=[])
    req, state = SimpleNamespace(fill_ids=[*range(10)], prefix_indices=[7, 8, 9]), FixState(FIX)
    left = one_call.run(one_call.target_of(FIX, "add_chunked_req"), add_chunked_req, state, adder, req)
    assert (req.fill_ids, state.counters.corrections) == ([*range(kept)], corrections)
    assert left is (None if rem == 20 else req)
