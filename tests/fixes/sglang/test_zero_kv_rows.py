"""sglang.zero-kv-rows without an engine: flags, launches, and no look at a device tensor."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfix.compat.status.fix_state import FixState
from attnfix.kernels import kernel_status
from attnfix.patches.sglang.zero_kv_rows import wrap
from attnfix.patches.sglang.zero_kv_rows.fix import FIX
from tests.support import one_call
from tests.support.no_sync import NoSync

FORWARD, PLAN = (one_call.target_of(FIX, name) for name in ("forward_extend", "prepare_chunked_prefix_cache_info"))
HEADS, DIM = 2, 8


def batch_of(prefix, new, chunk_len):
    """A forward batch after the engine's chunk planning."""
    chunks = -(-max(prefix, default=0) // chunk_len)
    starts = torch.arange(chunks, dtype=torch.int32)[:, None] * chunk_len
    lens = (torch.tensor(prefix, dtype=torch.int32)[None] - starts).clamp(0, chunk_len)
    return SimpleNamespace(
        extend_prefix_lens_cpu=prefix, extend_seq_lens_cpu=new, num_prefix_chunks=chunks, prefix_chunk_len=chunk_len,
        prefix_chunk_seq_lens=lens.int(), attn_attend_prefix_cache=True, prefix_chunk_idx=-1,
    )  # fmt: skip


def backend_of(new):
    cumulative = torch.tensor([0, *new], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    return SimpleNamespace(forward_prefill_metadata=SimpleNamespace(cum_seq_lens=cumulative))


def plan(batch):
    """Once per batch; the engine's own planning is `batch_of`."""

    def prepare_chunked_prefix_cache_info(self, device):
        pass

    one_call.run(PLAN, prepare_chunked_prefix_cache_info, FixState(FIX), batch, "cpu")


def forward(batch, backend, result):
    """(what the caller gets where the engine returns `result`, the fix's counters)"""

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, q_rope=None, k_rope=None):
        return result

    state = FixState(FIX)
    return one_call.run(FORWARD, forward_extend, state, backend, None, None, None, None, batch), state.counters


def launches():
    return kernel_status()["fixup_zero_kv_rows"]["launches"]["reference"]


requests = st.lists(st.tuples(st.integers(0, 70), st.integers(1, 5)), min_size=1, max_size=6)


@given(requests, st.integers(1, 40), st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_flags_launches_and_rows(drawn, chunk_len, layers):
    prefix, new = [p for p, _ in drawn], [n for _, n in drawn]
    batch, backend = batch_of(prefix, new, chunk_len), backend_of(new)
    plan(batch)
    flags = [bool((row == 0).any()) for row in batch.prefix_chunk_seq_lens]
    assert wrap._flags(batch) == flags
    before, padding = launches(), 2
    for _ in range(layers):
        for chunk in range(batch.num_prefix_chunks):
            batch.prefix_chunk_idx = chunk
            out, lse = torch.randn(sum(new) + padding, HEADS, DIM), torch.randn(sum(new) + padding, HEADS)
            expected = out.clone(), lse.clone()
            with NoSync():
                result, counters = forward(batch, backend, (out, lse))
            empty = torch.tensor([kv == 0 for kv in batch.prefix_chunk_seq_lens[chunk]]).repeat_interleave(torch.tensor(new))
            expected[0][: sum(new)][empty], expected[1][: sum(new)][empty] = 0, -math.inf
            assert result[0] is out and result[1] is lse
            assert torch.equal(out, expected[0]) and torch.equal(lse, expected[1])
            assert (counters.corrections, counters.rows) == ((1, int(empty.sum())) if flags[chunk] else (0, 0))
    assert launches() - before == sum(flags) * layers


@pytest.mark.parametrize(
    "change",
    [
        lambda batch, backend: setattr(batch, "attn_attend_prefix_cache", False),
        lambda batch, backend: setattr(batch, "attn_attend_prefix_cache", None),
        lambda batch, backend: setattr(backend, "forward_prefill_metadata", None),
        lambda batch, backend: setattr(backend.forward_prefill_metadata, "fallback_to_flashinfer_impl", True),
    ],
)
def test_other_branches_are_left_alone(change):
    batch, backend = batch_of([4, 0], [1, 1], 4), backend_of([1, 1])
    batch.prefix_chunk_idx = 0
    change(batch, backend)
    before = launches()
    (out, _), _ = forward(batch, backend, (torch.ones(2, HEADS, DIM), torch.ones(2, HEADS)))
    assert bool((out == 1).all()) and launches() == before


def test_a_result_without_lse_is_left_alone():
    batch, backend = batch_of([4, 0], [1, 1], 4), backend_of([1, 1])
    batch.prefix_chunk_idx = 0
    assert forward(batch, backend, "out")[0] == "out"


def test_a_batch_that_is_planned_again_is_looked_at_again():
    batch, backend = batch_of([4, 8], [1, 1], 4), backend_of([1, 1])
    batch.prefix_chunk_idx = 1
    for prefix in ([8, 8], [4, 8], [8, 8], [8, 4]):
        batch.extend_prefix_lens_cpu = prefix
        batch.prefix_chunk_seq_lens = batch_of(prefix, [1, 1], 4).prefix_chunk_seq_lens
        plan(batch)
        out, lse = torch.ones(2, HEADS, DIM), torch.ones(2, HEADS)
        forward(batch, backend, (out, lse))
        assert out[:, 0, 0].tolist() == [float(n > 4) for n in prefix]
