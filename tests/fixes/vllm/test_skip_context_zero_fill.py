"""vllm.skip-context-zero-fill without an engine: one allocation is left unfilled, and nothing else; no row leaks."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.fix import Target
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.lab.proof import cumulative
from attnfix.patches.lab.vllm.mla_prefill import uninitialised
from attnfix.patches.vllm.skip_context_zero_fill import wrap
from attnfix.patches.vllm.skip_context_zero_fill.fix import FIX
from attnfix.patches.vllm.skip_context_zero_fill.proof import zero_fills
from tests.fixes.sglang.test_zero_kv_rows import DIM, HEADS
from tests.support import one_call

(TARGET,) = FIX.targets

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


def fresh():
    state = FixState(FIX)
    state.fired = True
    return state


def arguments(dtype=torch.bfloat16, prefill=WITH_CONTEXT):
    q, v = torch.ones(TOKENS, HEADS, DIM + 4, dtype=dtype), torch.ones(5, HEADS, DIM, dtype=dtype)
    return {"prefill": prefill, "chunk_idx": 0, "q": q, "k": q, "v": v}


def call(engine, **options):
    """(result, corrections counted) of one chunk."""
    state = fresh()
    result = one_call.run(TARGET, Engine.chunk, state, engine, **arguments(**options))
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

    state, q = fresh(), torch.ones(1, 1, DIM)
    with pytest.raises(RuntimeError, match="the engine's"):
        one_call.run(TARGET, Engine.chunk, state, Engine(broken), None, 0, q, q, q)
    assert state.armed and state.counters.calls == 1


def test_where_another_correction_runs_in_between_the_fill_stays():
    state, other = fresh(), fresh()
    passes = Target(lambda call, instance: call(), paths=TARGET.paths, needed=lambda target, instance: False)
    wrapper = one_call.wrapper(passes, Engine.chunk, other).add(state, TARGET.correct, TARGET.needed)
    state.armed = True
    with uninitialised(VALUE):
        out = wrapper.function(Engine(), **arguments())
    assert (out == 0).all() and state.counters.corrections == 0 and other.counters.calls == 1 and state.armed


def test_a_neutralisation_that_fails_leaves_the_engines_own_result(monkeypatch):
    def broken(*args):
        raise RuntimeError("no kernel")

    monkeypatch.setattr(wrap.empty_rows, "some_in", broken)
    state = fresh()
    with uninitialised(VALUE):
        out = one_call.wrapper(TARGET, Engine.chunk, state).function(Engine(), **arguments())
    assert (out == 0).all() and state.state == "failed" and "no kernel" in state.reason


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
