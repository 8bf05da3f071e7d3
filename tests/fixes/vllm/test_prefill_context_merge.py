"""vllm.prefill-context-merge without an engine: the count, which merge gets it, and that nothing is left behind."""

from __future__ import annotations

import gc
import threading
import weakref
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfix import kernels
from attnfix.compat.status.fix_state import FAILED, FixState
from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import cumulative
from attnfix.patches.vllm.prefill_context_merge import wrap
from attnfix.patches.vllm.prefill_context_merge.fix import FIX
from tests.fixes.sglang.test_zero_kv_rows import DIM, HEADS
from tests.support import one_call
from tests.support.no_sync import NoSync

BUILD, LOOP, MERGE = (one_call.target_of(FIX, name) for name in ("build", "_compute_prefill_context", "merge_attn_states"))
REQUESTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), min_size=1, max_size=6)  # chunks of context, new tokens


def chunk_lens(context, chunks=2):
    return torch.tensor([[int(n > chunk) for n in context] for chunk in range(chunks)], dtype=torch.int32)


def metadata_of(context, new, decodes=0):
    """What the engine's `build` is given and returns."""
    starts = cumulative([1] * decodes + list(new))
    chunked = SimpleNamespace(seq_lens=chunk_lens(context)) if any(context) else None
    built = SimpleNamespace(num_decodes=decodes, prefill=SimpleNamespace(chunked_context=chunked))
    return SimpleNamespace(query_start_loc_cpu=starts), built


def noted(common, built):
    """`built`, as the engine's `build` returns it for `common`, corrected."""

    def engine(self, common_prefix_len, common_attn_metadata, fast_build=False):
        return built

    assert one_call.run(BUILD, engine, FixState(FIX), "the builder", 0, common) is built
    return built


def build(context, new, decodes=0):
    common, built = metadata_of(context, new, decodes)
    host = [common.query_start_loc_cpu] + ([built.prefill.chunked_context.seq_lens] if any(context) else [])
    with NoSync(*host):
        return noted(common, built)


def context_loop(built, tokens, result=None):
    """The engine's loop, corrected: (out, lse), which are `result` where the backend hands out that."""
    result = result or (torch.randn(tokens, HEADS, DIM), torch.randn(HEADS, tokens))

    def engine(self, q, kv_c_and_k_pe_cache, attn_metadata, k_scale):
        return result

    assert one_call.run(LOOP, engine, FixState(FIX), "the layer", None, None, built, None) is result
    return result


def merge_arguments(context, tokens):
    suffix = torch.randn(tokens, HEADS, DIM), torch.randn(HEADS, tokens)
    return {
        "output": torch.empty(tokens, HEADS, DIM),
        "prefix_output": context[0],
        "prefix_lse": context[1],
        "suffix_output": suffix[0],
        "suffix_lse": suffix[1],
    }


def recording():
    """The engine's merge, and what it was called with."""
    calls = []

    def engine(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None):
        calls.append((output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse))

    return engine, calls


def merge(arguments):
    """(calls of the engine's merge, corrections, rows)"""
    (engine, calls), state = recording(), FixState(FIX)
    state.fired = True
    one_call.run(MERGE, engine, state, **arguments)
    return calls, state.counters.corrections, state.counters.rows


def untouched(arguments):
    """What `merge` gives where the engine's merge gets the same objects, and nothing is corrected."""
    return [(*arguments.values(), None)], 0, 0


@given(REQUESTS, st.integers(0, 2), st.integers(0, 1))
@settings(max_examples=200, deadline=None)
def test_the_count_is_that_of_a_leading_run_or_none(requests, decodes, padding):
    requests = requests + [(0, 0)] * padding
    context, new = zip(*requests)
    per_token = [n > 0 for n, m in requests for _ in range(m)]
    leading = sorted(per_token, reverse=True) == per_token
    expected = sum(per_token) if leading and not all(per_token) else None
    built = build(context, new, decodes)
    if any(context):
        assert getattr(built.prefill, wrap._TOKENS) == expected
    else:  # no loop runs, nothing is noted
        assert not hasattr(built.prefill, wrap._TOKENS)


@given(REQUESTS)
@settings(max_examples=60, deadline=None)
def test_the_final_merge_alone_takes_the_count(requests):
    context, new = zip(*requests)
    tokens = sum(new)
    if not tokens or not any(context):
        return
    built = build(context, new)
    count = getattr(built.prefill, wrap._TOKENS)
    arguments = merge_arguments(context_loop(built, tokens), tokens)
    if count is not None:  # what is not read may hold anything
        arguments["prefix_output"][count:] = torch.nan
        arguments["prefix_lse"][:, count:] = torch.nan
    expected = torch.empty(tokens, HEADS, DIM)
    emulators.merge_attn_states(**{**arguments, "output": expected}, prefill_tokens_with_context=count)
    found = merge(arguments)
    if count is None:
        assert found == untouched(arguments)
    else:
        assert found == ([], 1, tokens - count)
        assert torch.allclose(arguments["output"], expected, atol=1e-5)
        assert torch.equal(arguments["output"][count:], arguments["suffix_output"][count:])
    # The same LSE once more: the count was used up
    assert merge(arguments) == untouched(arguments)


def test_where_context_does_not_come_first_the_engines_merge_is_called_untouched():
    built = build((0, 2, 1), (3, 2, 4))
    arguments = merge_arguments(context_loop(built, 9), 9)
    assert merge(arguments) == untouched(arguments)


def test_other_merges_pass():
    """Cascade attention, and the merges inside the context loop."""
    context_loop(build((1, 0), (2, 3)), 5)
    arguments = merge_arguments((torch.randn(5, HEADS, DIM), torch.randn(HEADS, 5)), 5)
    assert merge(arguments) == untouched(arguments)


def test_a_later_loop_overwrites_and_nothing_is_kept_alive():
    mixed, full = build((1, 0), (2, 3)), build((1, 1), (2, 3))
    result = torch.randn(5, HEADS, DIM), torch.randn(HEADS, 5)
    for built in (mixed, full):  # a backend that hands out one tensor again and again, and a merge that never came
        context_loop(built, 5, result)
    arguments = merge_arguments(result, 5)
    assert merge(arguments) == untouched(arguments)
    gone = weakref.ref(context_loop(mixed, 5)[1])
    gc.collect()
    assert gone() is None


def test_an_error_of_the_loop_passes_and_leaves_nothing():
    def broken(self, q, kv_c_and_k_pe_cache, attn_metadata, k_scale):
        raise RuntimeError("the engine's")

    state = FixState(FIX)
    with pytest.raises(RuntimeError, match="the engine's"):
        one_call.run(LOOP, broken, state, "the layer", None, None, build((1, 0), (2, 3)), None)
    assert state.armed
    arguments = merge_arguments((torch.randn(5, HEADS, DIM), torch.randn(HEADS, 5)), 5)
    assert merge(arguments) == untouched(arguments)


def test_threads_do_not_meet():
    """Every thread is between its loop and its merge at once, each with a count of its own."""
    together, wrong = threading.Barrier(4), []

    def one(count):
        built = build((1, 0), (count, 8 - count))
        arguments = merge_arguments(context_loop(built, 8), 8)
        together.wait()
        if merge(arguments) != ([], 1, 8 - count):
            wrong.append(count)

    threads = [threading.Thread(target=one, args=(count,)) for count in (1, 3, 5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@torch.inference_mode()
def test_inference_mode_and_a_padded_head():
    """The engine may slice the output of the loop on its way to the merge (FlashAttention 2 pads V); the LSE it does not."""
    built = build((1, 0), (2, 3))
    out, lse = context_loop(built, 5)
    arguments = merge_arguments((torch.cat([out, out], -1)[..., :DIM], lse), 5)
    assert merge(arguments) == ([], 1, 3)


def test_no_context_no_note():
    common, built = metadata_of((0, 0), (2, 3))
    assert not hasattr(noted(common, built).prefill, wrap._TOKENS)
    built.prefill = None
    noted(common, built)


def test_rocm_keeps_its_own_merge(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "7.0")
    arguments = merge_arguments(context_loop(build((1, 0), (2, 3)), 5), 5)
    assert merge(arguments) == untouched(arguments)


def test_an_argument_that_our_op_refuses_is_an_error_of_the_correction():
    """The wrapper disarms the fix and calls the engine's merge."""
    arguments = merge_arguments(context_loop(build((1, 0), (2, 3)), 5), 5)
    arguments["output"] = arguments["output"].double()
    (engine, calls), state = recording(), FixState(FIX)
    one_call.wrapper(MERGE, engine, state).function(**arguments)
    assert state.state == FAILED and "TypeError" in state.reason
    assert (calls, state.counters.corrections, state.counters.rows) == untouched(arguments)
    assert kernels.kernel_status()["merge_attn_states"]["launches"]["cuda"] == 0
