"""vllm.prefill-context-merge without an engine: the count, which merge gets it, and that nothing is left behind."""

from __future__ import annotations

import gc
import threading
import weakref
from types import SimpleNamespace

import one_call
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from no_sync import NoSync
from test_zero_kv_rows import DIM, HEADS, Wrapped

from attnfix import kernels
from attnfix.patches import emulators
from attnfix.patches.scenario import cumulative
from attnfix.patches.vllm.prefill_context_merge import wrap

REQUESTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), min_size=1, max_size=6)  # chunks of context, new tokens


def chunk_lens(context, chunks=2):
    return torch.tensor([[int(n > chunk) for n in context] for chunk in range(chunks)], dtype=torch.int32)


def metadata_of(context, new, decodes=0):
    """What the engine's `build` is given and returns."""
    starts = cumulative([1] * decodes + list(new))
    chunked = SimpleNamespace(seq_lens=chunk_lens(context)) if any(context) else None
    built = SimpleNamespace(num_decodes=decodes, prefill=SimpleNamespace(chunked_context=chunked))
    return SimpleNamespace(query_start_loc_cpu=starts), built


def build(context, new, decodes=0):
    common, built = metadata_of(context, new, decodes)
    host = [common.query_start_loc_cpu] + ([built.prefill.chunked_context.seq_lens] if any(context) else [])
    with NoSync(*host):
        assert wrap.build(Wrapped(built), None, (0, common), {}) is built
    return built


def context_loop(built, tokens):
    """The engine's loop, corrected: (out, lse)."""
    result = torch.randn(tokens, HEADS, DIM), torch.randn(HEADS, tokens)
    one_call.corrected(wrap.compute_prefill_context, Wrapped(result), None, (None, None, built, None), {})
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


class Recorded(Wrapped):
    """The engine's merge: notes what it was called with."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __call__(self, *args, **kwargs):
        self.calls.append((args, kwargs))


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
    expected, engine = torch.empty(tokens, HEADS, DIM), Recorded()
    emulators.merge_attn_states(**{**arguments, "output": expected}, prefill_tokens_with_context=count)
    one_call.corrected(wrap.merge_attn_states, engine, None, (), arguments)
    if count is None:
        assert engine.calls == [((), arguments)] and engine.rows == []
    else:
        assert engine.calls == [] and engine.rows == [tokens - count]
        assert torch.allclose(arguments["output"], expected, atol=1e-5)
        assert torch.equal(arguments["output"][count:], arguments["suffix_output"][count:])
    # The same LSE once more: the count was used up
    one_call.corrected(wrap.merge_attn_states, again := Recorded(), None, (), arguments)
    assert len(again.calls) == 1


def test_where_context_does_not_come_first_the_engines_merge_is_called_untouched():
    built = build((0, 2, 1), (3, 2, 4))
    arguments = merge_arguments(context_loop(built, 9), 9)
    before = dict(arguments)
    one_call.corrected(wrap.merge_attn_states, engine := Recorded(), None, (), arguments)
    assert engine.calls == [((), before)] and engine.rows == []


def test_other_merges_pass():
    """Cascade attention, and the merges inside the context loop."""
    context_loop(build((1, 0), (2, 3)), 5)
    arguments = merge_arguments((torch.randn(5, HEADS, DIM), torch.randn(HEADS, 5)), 5)
    one_call.corrected(wrap.merge_attn_states, engine := Recorded(), None, (), arguments)
    assert engine.calls == [((), arguments)] and engine.rows == []


def test_a_later_loop_overwrites_and_nothing_is_kept_alive():
    mixed, full = build((1, 0), (2, 3)), build((1, 1), (2, 3))
    result = torch.randn(5, HEADS, DIM), torch.randn(HEADS, 5)
    for built in (mixed, full):  # a backend that hands out one tensor again and again, and a merge that never came
        one_call.corrected(wrap.compute_prefill_context, Wrapped(result), None, (None, None, built, None), {})
    one_call.corrected(wrap.merge_attn_states, engine := Recorded(), None, (), merge_arguments(result, 5))
    assert len(engine.calls) == 1
    gone = weakref.ref(context_loop(mixed, 5)[1])
    gc.collect()
    assert gone() is None


def test_an_error_of_the_loop_passes_and_leaves_nothing():
    def broken(*args, **kwargs):
        raise RuntimeError("the engine's")

    with pytest.raises(RuntimeError, match="the engine's"):
        wrap.compute_prefill_context(broken, None, (None, None, build((1, 0), (2, 3)), None), {})
    arguments = merge_arguments((torch.randn(5, HEADS, DIM), torch.randn(HEADS, 5)), 5)
    one_call.corrected(wrap.merge_attn_states, engine := Recorded(), None, (), arguments)
    assert len(engine.calls) == 1


def test_threads_do_not_meet():
    """Every thread is between its loop and its merge at once, each with a count of its own."""
    together, wrong = threading.Barrier(4), []

    def one(count):
        built = build((1, 0), (count, 8 - count))
        arguments = merge_arguments(context_loop(built, 8), 8)
        together.wait()
        one_call.corrected(wrap.merge_attn_states, engine := Recorded(), None, (), arguments)
        if engine.calls or engine.rows != [8 - count]:
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
    one_call.corrected(wrap.merge_attn_states, engine := Recorded(), None, (), arguments)
    assert engine.rows == [3] and not engine.calls


def test_no_context_no_note():
    common, built = metadata_of((0, 0), (2, 3))
    assert wrap.build(Wrapped(built), None, (0, common), {}) is built
    assert not hasattr(built.prefill, wrap._TOKENS)
    built.prefill = None
    assert wrap.build(Wrapped(built), None, (0, common), {}) is built


def test_rocm_keeps_its_own_merge(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "7.0")
    built = build((1, 0), (2, 3))
    one_call.corrected(wrap.merge_attn_states, engine := Recorded(), None, (), merge_arguments(context_loop(built, 5), 5))
    assert len(engine.calls) == 1


def test_an_argument_that_our_op_refuses_is_an_error_of_the_correction():
    """So that the wrapper disarms the fix and calls the engine's merge."""
    arguments = merge_arguments(context_loop(build((1, 0), (2, 3)), 5), 5)
    arguments["output"] = arguments["output"].double()
    engine = Recorded()
    with pytest.raises(TypeError):
        one_call.corrected(wrap.merge_attn_states, engine, None, (), arguments)
    assert engine.calls == [] and kernels.kernel_status()["merge_attn_states"]["launches"]["cuda"] == 0
