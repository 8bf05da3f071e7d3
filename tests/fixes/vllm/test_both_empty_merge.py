"""vllm.both-empty-merge-cuda and -triton without an engine: which rows, when, and only host tensors are looked at."""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.lab.proof import cumulative
from attnfix.patches.vllm.both_empty_merge_cuda.fix import FIX as CUDA
from attnfix.patches.vllm.both_empty_merge_triton.fix import FIX as TRITON
from attnfix.patches.vllm.shared import both_empty
from tests.fixes.sglang.test_zero_kv_rows import DIM, HEADS, launches
from tests.support import one_call
from tests.support.no_sync import NoSync

CHUNK = 4


@contextmanager
def entry(home, cuda):
    """The engine's entry in one of its homes, on a CUDA platform or not."""
    former = {name: sys.modules.pop(name, None) for name in both_empty.ENTRIES}
    sys.modules[home] = SimpleNamespace(current_platform=SimpleNamespace(is_cuda=lambda: cuda))
    try:
        yield
    finally:
        del sys.modules[home]
        sys.modules.update({name: module for name, module in former.items() if module})


def metadata_of(context):
    chunks = -(-max(context) // CHUNK)
    starts = torch.arange(chunks, dtype=torch.int32)[:, None] * CHUNK
    lens = (torch.tensor(context, dtype=torch.int32) - starts).clamp(0, CHUNK)
    chunked = SimpleNamespace(
        seq_tot=lens.sum(1).tolist(), seq_lens=lens, cu_seq_lens=torch.stack([cumulative(row.tolist()) for row in lens])
    )
    return SimpleNamespace(prefill=SimpleNamespace(chunked_context=chunked, query_start_loc=None))


def run(fix, drawn):
    """(out, lse, expected out, expected lse, corrections) after a loop whose merges left NaN everywhere."""
    context, new = [c for c, _ in drawn], [n for _, n in drawn]
    metadata = metadata_of(context)
    metadata.prefill.query_start_loc = cumulative(new)
    out, lse = torch.randn(sum(new), HEADS, DIM), torch.randn(HEADS, sum(new))
    fresh = torch.tensor([c == 0 for c in context]).repeat_interleave(torch.tensor(new))
    out[fresh], lse[:, fresh] = math.nan, math.nan
    expected = out.clone(), lse.clone()
    expected[0][fresh], expected[1][:, fresh] = 0, -math.inf
    state = FixState(fix)
    state.fired = True

    def loop(self, q, kv_c_and_k_pe_cache, attn_metadata, k_scale):
        return out, lse

    target = one_call.target_of(fix, "_compute_prefill_context")
    with NoSync(metadata.prefill.chunked_context.seq_lens):
        result = one_call.run(target, loop, state, "the layer", None, None, metadata, None)
    assert result[0] is out and result[1] is lse
    return out, lse, *expected, state.counters.corrections


requests = st.lists(st.tuples(st.integers(0, 14), st.integers(1, 5)), min_size=1, max_size=6).filter(
    lambda drawn: any(c for c, _ in drawn)
)


@given(drawn=requests, on_cuda=st.booleans(), home=st.sampled_from(both_empty.ENTRIES))
@settings(max_examples=80, deadline=None)
def test_rows_of_fresh_requests_after_several_chunks(drawn, on_cuda, home):
    before, (mine, other) = launches(), (CUDA, TRITON) if on_cuda else (TRITON, CUDA)
    with entry(home, on_cuda):
        assert run(other, drawn)[4] == 0 and launches() == before
        out, lse, expected_out, expected_lse, corrections = run(mine, drawn)
    fresh = any(c == 0 for c, _ in drawn)
    needed = fresh and max(c for c, _ in drawn) > CHUNK
    assert corrections == launches() - before == int(needed)
    if needed:
        assert torch.equal(out, expected_out) and torch.equal(lse, expected_lse)
    else:  # one chunk is not merged in the loop: what the backend gave is left as it is
        assert bool(out.isnan().any()) is fresh
