"""vllm.skip-context-zero-fill without an engine: one allocation is left unfilled, and nothing else; no row leaks."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace

import one_call
import pytest
import torch
from test_zero_kv_rows import DIM, HEADS

from attnfix.compat.fix import NOT_NEEDED
from attnfix.compat.states import PlainCounters
from attnfix.compat.wrapping import INSIDE
from attnfix.patches.scenario import cumulative
from attnfix.patches.vllm.mla_prefill import uninitialised
from attnfix.patches.vllm.skip_context_zero_fill import wrap
from attnfix.patches.vllm.skip_context_zero_fill.proof import zero_fills

TOKENS = 9
SHAPE = (TOKENS, HEADS, DIM)
VALUE = 3.0  # what uninitialised memory holds here
HEAD_DIM = DIM  # a global of this module that the method below reads


class Engine:
    """The engine's method: allocates, then runs `kernel(out)`."""

    def __init__(self, kernel=lambda out: out):
        self.kernel = kernel

    def chunk(self, prefill, chunk_idx, q, k, v):
        assert v.shape[2] == HEAD_DIM
        out = torch.zeros(q.shape[0], q.shape[1], v.shape[2], device=q.device, dtype=q.dtype)
        return self.kernel(out)


WITH_CONTEXT = SimpleNamespace(chunked_context=SimpleNamespace(seq_lens=torch.ones(1, 1, dtype=torch.int32)))


def call(engine, inside=(), dtype=torch.bfloat16, prefill=WITH_CONTEXT):
    """(result, corrections counted) of one chunk; `inside`: what other fixes have between this one and the engine."""
    state = SimpleNamespace(counters=PlainCounters(), fired=True)
    q, v = torch.ones(TOKENS, HEADS, DIM + 4, dtype=dtype), torch.ones(5, HEADS, DIM, dtype=dtype)
    kwargs = {"prefill": prefill, "chunk_idx": 0, "q": q, "k": q, "v": v}
    wrapped = one_call.call_of(engine.chunk, state)
    wrapped.inside = inside
    result = one_call.corrected(wrap.run_prefill_context_chunk, wrapped, engine, (), kwargs)
    assert wrapped.result is result
    return result, state.counters.corrections


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_allocation_is_not_filled_and_otherwise_the_same(mode, dtype):
    with mode():
        expected = torch.zeros(*SHAPE, dtype=dtype)
        with uninitialised(VALUE), zero_fills() as fills:
            out, corrections = call(Engine(), dtype=dtype)
        assert fills == [] and corrections == 1
        assert (out == VALUE).all()
        assert (out.shape, out.dtype, out.stride(), out.device) == (SHAPE, dtype, expected.stride(), expected.device)
        assert out.is_inference() == expected.is_inference() and out.requires_grad is False


def test_what_the_method_calls_and_others_allocate_is_left_alone():
    def kernel(out):
        return out, torch.zeros(*SHAPE, dtype=out.dtype), torch.zeros(TOKENS), torch.zeros_like(out), torch.full(SHAPE, 0.0)

    engine = Engine(kernel)
    with uninitialised(VALUE):
        (out, *others), _ = call(engine)
        after = torch.zeros(*SHAPE)
        stock = engine.chunk(None, 0, torch.ones(1, 1, DIM), None, torch.ones(1, 1, DIM))
    assert (out == VALUE).all() and all((other == 0).all() for other in [*others, after, stock[0]])


def test_other_threads_keep_their_zeros():
    inside, done, seen = threading.Event(), threading.Event(), []
    thread = threading.Thread(target=lambda: (inside.wait(), seen.append(torch.zeros(*SHAPE)), done.set()))
    thread.start()
    with uninitialised(VALUE):
        out, _ = call(Engine(lambda out: (inside.set(), done.wait(), out)[2]))
    thread.join()
    assert (seen[0] == 0).all() and (out == VALUE).all()


def test_the_methods_other_globals_are_read_when_it_runs(monkeypatch):
    monkeypatch.setitem(globals(), "HEAD_DIM", -1)
    with pytest.raises(AssertionError):
        call(Engine())


def test_an_error_of_the_engine_is_the_engines():
    def broken(out):
        raise RuntimeError("the engine's")

    engine = Engine(broken)
    wrapped = one_call.call_of(engine.chunk, None)
    q = torch.ones(1, 1, DIM)
    with pytest.raises(RuntimeError, match="the engine's"):
        one_call.corrected(wrap.run_prefill_context_chunk, wrapped, engine, (None, 0, q, q, q), {})
    assert wrapped.result is INSIDE


def test_where_another_correction_runs_in_between_the_fill_stays():
    other = SimpleNamespace(armed=True, confirm=None, counters=PlainCounters())
    with uninitialised(VALUE):
        out, corrections = call(Engine(), ((other, lambda *_: NOT_NEEDED, ()),))
    assert (out == 0).all() and corrections == 0 and other.counters.calls == 1


def test_a_neutralisation_that_fails_leaves_the_engines_own_result(monkeypatch):
    def broken(*args):
        raise RuntimeError("no kernel")

    monkeypatch.setattr(wrap.empty_rows, "some_in", broken)
    engine, q = Engine(), torch.ones(TOKENS, HEADS, DIM)
    wrapped = one_call.call_of(engine.chunk, None)
    with uninitialised(VALUE), pytest.raises(RuntimeError, match="no kernel"):
        wrap.run_prefill_context_chunk(wrapped, engine, (), {"prefill": WITH_CONTEXT, "chunk_idx": 0, "q": q, "k": q, "v": q})
    assert (wrapped.result == 0).all()


@pytest.mark.parametrize("kv", [(4, 0, 7, 0), (0, 0, 0, 0), (1, 1, 1, 1)])
@pytest.mark.parametrize("undefined", [math.nan, math.inf, 7.0])
def test_with_the_rows_made_up_for_nothing_undefined_is_left(kv, undefined):
    """All-empty chunks and requests that pad the batch; rows past the last request are neither read nor written."""
    new = (2, 3, 1, 0)
    rows = sum(new)
    has_kv = torch.tensor(kv).repeat_interleave(torch.tensor(new)) > 0
    chunked = SimpleNamespace(seq_lens=torch.tensor([kv], dtype=torch.int32), cu_seq_lens=cumulative(kv)[None])
    prefill = SimpleNamespace(chunked_context=chunked, query_start_loc=cumulative(new))

    def kernel(out):
        out[:rows][has_kv] = 1
        lse = torch.full((HEADS, TOKENS), torch.nan)
        lse[:, :rows][:, has_kv] = 2
        return out, lse

    with uninitialised(undefined):
        (out, lse), corrections = call(Engine(kernel), dtype=torch.float32, prefill=prefill)
    assert corrections == 1
    assert (out[:rows] == has_kv[:, None, None]).all()
    assert (lse[:, :rows] == torch.where(has_kv, 2, -math.inf)).all()
    assert torch.equal(out[rows:].nan_to_num(-1), torch.full_like(out[rows:], undefined).nan_to_num(-1))
