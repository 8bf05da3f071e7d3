"""vllm.empty-context-chunks without an engine: rows, launches, and only the host tensor is looked at."""

from __future__ import annotations

import math
from types import SimpleNamespace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.empty_context_chunks.fix import FIX
from tests.fixes.sglang.test_zero_kv_rows import DIM, HEADS, launches
from tests.support import one_call
from tests.support.no_sync import NoSync

TARGET = one_call.target_of(FIX, "_run_prefill_context_chunk_trtllm_ragged")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=6), st.booleans(), st.integers(0, 2))
@settings(max_examples=80, deadline=None)
def test_rows_and_launches(drawn, on_the_backend, chunk):
    """The metadata comes as an argument (up to 0.20.2), or the backend holds it (from 0.21.0)."""
    context, new = torch.tensor([c for c, _ in drawn]), [n for _, n in drawn]
    offsets = lambda lens: torch.tensor([0, *lens], dtype=torch.int32).cumsum(0, dtype=torch.int32)  # noqa: E731
    lens = torch.full((3, len(new)), 2, dtype=torch.int32)  # of the other chunks
    lens[chunk] = context
    chunked = SimpleNamespace(seq_lens=lens, cu_seq_lens=torch.stack([offsets(row.tolist()) for row in lens]))
    prefill = SimpleNamespace(chunked_context=chunked, query_start_loc=offsets(new))
    out, lse = torch.randn(sum(new) + 2, HEADS, DIM), torch.randn(HEADS, sum(new) + 2)
    expected = out.clone(), lse.clone()
    empty = (context == 0).repeat_interleave(torch.tensor(new))
    expected[0][: sum(new)][empty] = 0
    expected[1][:, : sum(new)][:, empty] = -math.inf
    before, state = launches(), FixState(FIX)
    state.fired = True

    def of_the_layer(self, prefill, chunk_idx, q, k, v):
        return out, lse

    def of_the_backend(self, chunk_idx, q, k, v):
        return out, lse

    with NoSync(chunked.seq_lens):
        given = {"chunk_idx": chunk, "q": None, "k": None, "v": None}
        if on_the_backend:
            result = one_call.run(TARGET, of_the_backend, state, SimpleNamespace(_prefill_metadata=prefill), **given)
        else:
            result = one_call.run(TARGET, of_the_layer, state, "the layer", prefill=prefill, **given)
    assert result[0] is out and result[1] is lse
    assert torch.equal(out, expected[0]) and torch.equal(lse, expected[1])
    assert launches() - before == state.counters.corrections == int((context == 0).any())
