"""vllm.mla-context-order without an engine: which order is wrong, both homes, and a merge that meets no undefined row."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfix.compat.fix import Target
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import cumulative
from attnfix.patches.vllm.mla_context_order import wrap
from attnfix.patches.vllm.mla_context_order.fix import FIX
from tests.fixes.sglang.test_zero_kv_rows import DIM, HEADS, launches
from tests.support import one_call
from tests.support.no_sync import NoSync

BUILD, LOOP = FIX.targets[:2]
CONTEXT = st.lists(st.integers(0, 3), min_size=1, max_size=7)


def metadata_of(prefill, new):
    """The metadata of a batch of prefills behind one decode."""
    return SimpleNamespace(prefill=prefill, num_actual_tokens=1 + sum(new), num_decode_tokens=1)


def planned(context, new, **fields):
    """The chunked context of a batch as the engine plans it: its prefix length counts requests, whatever their order."""
    starts, lens = cumulative(new), torch.tensor([context], dtype=torch.int32)
    length = starts.tolist()[sum(n > 0 for n in context)]
    return SimpleNamespace(seq_lens=lens, cu_seq_lens=cumulative(context)[None], prefill_tokens_with_context=length, **fields)


def build(result):
    """How often the fix corrected `result`, which the engine's builder returns, or the function that builders share."""

    def build_mla_chunked_context_metadata(*, context_lens_cpu):
        return result

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        return result

    state = FixState(FIX)
    if hasattr(result, "prefill"):
        built = one_call.run(Target(BUILD.correct, paths=BUILD.paths[1:]), build, state, object(), 0, None)
    else:
        built = one_call.run(BUILD, build_mla_chunked_context_metadata, state, context_lens_cpu=None)
    assert built is result
    return state.counters.corrections


def context_loop(metadata, result):
    """What the caller gets where the engine's loop returns `result`."""

    def _compute_prefill_context(self, q, kv_c_and_k_pe_cache, attn_metadata, k_scale):
        return result

    return one_call.run(LOOP, _compute_prefill_context, FixState(FIX), object(), None, None, metadata, None)


@given(CONTEXT)
def test_the_order_is_right_where_no_context_follows_a_request_without_any(context):
    has = [n > 0 for n in context]
    follows = any(later and not earlier for i, later in enumerate(has) for earlier in has[:i])
    assert wrap.context_leads(context) is not follows


@given(CONTEXT.filter(any), st.booleans())
@settings(deadline=None)
def test_only_a_wrong_order_loses_its_length(context, shared_function):
    """Up to 0.25.1 the metadata holds the plan; from 0.26.0 the plan itself is returned."""
    new = [2] * len(context)
    chunked = planned(context, new)
    length = chunked.prefill_tokens_with_context
    result = chunked if shared_function else metadata_of(SimpleNamespace(chunked_context=chunked), new)
    with NoSync(chunked.seq_lens):
        corrections = build(result)
    right = wrap.context_leads(context)
    assert chunked.prefill_tokens_with_context == (length if right else None)
    assert corrections == (not right)


@pytest.mark.parametrize("last", [0, 3])
def test_of_a_large_table_the_first_row_counts(last):
    context = [3] * wrap.SMALL + [0, last]
    chunked = planned(context, [2] * len(context))
    chunked.seq_lens = torch.stack([chunked.seq_lens[0], torch.zeros(len(context), dtype=torch.int32)])
    length = chunked.prefill_tokens_with_context
    with NoSync(chunked.seq_lens):
        build(chunked)
    assert chunked.prefill_tokens_with_context == (None if last else length)


@pytest.mark.parametrize("result", [None, *(SimpleNamespace(prefill=p) for p in (None, SimpleNamespace(chunked_context=None)))])
def test_a_batch_without_context_is_left_alone(result):
    assert build(result) == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=2, max_size=6))
@settings(max_examples=80, deadline=None)
def test_no_undefined_row_is_merged_and_no_context_is_lost(drawn):
    context, new = zip(*drawn)
    chunked = planned(context, new)
    prefill = SimpleNamespace(chunked_context=chunked, query_start_loc=cumulative(new))
    metadata, tokens = metadata_of(prefill, new), sum(new)
    build(metadata)
    has_context = torch.tensor([n > 0 for n in context]).repeat_interleave(torch.tensor(new))
    prefix, prefix_lse = torch.randn(tokens, HEADS, DIM), torch.randn(HEADS, tokens)
    suffix, suffix_lse = torch.randn(tokens, HEADS, DIM), torch.randn(HEADS, tokens)
    prefix[~has_context], prefix_lse[:, ~has_context] = math.nan, 3.0  # what a kernel may leave there
    expected, before = suffix.clone(), launches()
    emulators.merge_attn_states(expected, prefix, prefix_lse, suffix, suffix_lse)
    expected[~has_context] = suffix[~has_context]
    with NoSync(chunked.seq_lens):
        result = context_loop(metadata, (prefix, prefix_lse))
    assert result[0] is prefix and result[1] is prefix_lse
    out = torch.empty_like(suffix)
    emulators.merge_attn_states(
        out, *result, suffix, suffix_lse, prefill_tokens_with_context=chunked.prefill_tokens_with_context
    )
    assert torch.equal(out, expected)
    assert launches() - before == (not wrap.context_leads(list(context)))


def test_rows_that_the_engine_neutralises_itself_cost_no_launch():
    """From 0.26.0 every chunk is masked where the plan says so."""
    chunked = planned((0, 2), (1, 1), has_empty_context=[True])
    prefill = SimpleNamespace(chunked_context=chunked, query_start_loc=cumulative((1, 1)))
    build(chunked)
    before = launches()
    context_loop(SimpleNamespace(prefill=prefill), ())
    assert chunked.prefill_tokens_with_context is None and launches() == before
