"""sglang.draft-kv-indices without an engine: how wide a row is, what stays as it was, and where a row cannot be had."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.draft_kv_indices import wrap
from attnfix.patches.sglang.draft_kv_indices.fix import FIX
from tests.support import one_call

CONTEXT = 64
TARGET = one_call.target_of(FIX, "init_cuda_graph_state")


class Backend:
    """Allocates as the engine does; `memory` is how many indices can be had."""

    def __init__(self, topk, steps, memory=2**62, context=CONTEXT):
        self.topk, self.speculative_num_steps, self.max_context_len = topk, steps, context
        self.memory, self.shapes = memory, []

    def init_cuda_graph_state(self, max_bs, max_num_tokens):
        shape = self.speculative_num_steps, max_bs * self.max_context_len
        self.shapes.append(shape)
        if shape[0] * shape[1] > self.memory:
            raise MemoryError("CUDA out of memory")
        self.given = max_bs, max_num_tokens, shape[1]
        return "the engine's result"


def call(backend, *args):
    """The state of the fix, which may have failed."""
    state, context = FixState(FIX), backend.max_context_len
    result = one_call.wrapper(TARGET, Backend.init_cuda_graph_state, state).function(backend, *args)
    assert result == "the engine's result" and backend.max_context_len == context
    return state


def last_index(lens, topk, steps):
    """Of the index kernel's grid, what the furthest program writes: the last step's of the last branch of the last request."""
    cum_seq_len, bid, iters, topk_id = sum(lens[:-1]), len(lens) - 1, steps, topk - 1
    return cum_seq_len * topk + bid * iters * topk + topk_id * (lens[-1] + iters) + lens[-1] + iters - 1


@given(st.lists(st.integers(1, CONTEXT), min_size=1, max_size=6), st.integers(2, 10), st.integers(1, 8))
@settings(max_examples=200, deadline=None)
def test_every_batch_fits_and_the_fullest_leaves_nothing_over(lens, topk, steps):
    backend, max_bs = Backend(topk, steps), len(lens)
    state = call(backend, max_bs, max_bs * topk)
    width = backend.given[2]
    assert backend.given[:2] == (max_bs, max_bs * topk) and len(backend.shapes) == 1
    assert last_index(lens, topk, steps) < width
    assert last_index([CONTEXT] * max_bs, topk, steps) == width - 1
    assert state.counters.corrections == 1


def test_one_branch_is_left_alone():
    backend = Backend(topk=1, steps=3)
    state = call(backend, 4, 4)
    assert state.state != "failed" and state.counters.corrections == 0
    assert backend.shapes == [(3, 4 * CONTEXT)]


@pytest.mark.parametrize("free, fits", [(10**9, True), (0, False)])
def test_the_growth_takes_a_quarter_of_what_the_engines_own_buffer_leaves(monkeypatch, free, fits):
    backend = Backend(topk=4, steps=3)
    own, wide = (4 * 3 * 4 * width for width in (CONTEXT, 4 * (CONTEXT + 3)))
    least = own + 4 * (wide - own)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(wrap, "available", lambda: max(least, free) if fits else least - 4)
    state = call(backend, 4, 16)
    assert backend.given == (4, 16, wide // 12 if fits else 4 * CONTEXT) and len(backend.shapes) == 1
    assert (state.state == "failed") is not fits and state.counters.corrections == fits


def test_an_error_of_the_engine_passes_and_the_engine_is_called_once():
    backend = Backend(topk=4, steps=3, memory=0)
    state = FixState(FIX)
    with pytest.raises(MemoryError):
        one_call.run(TARGET, Backend.init_cuda_graph_state, state, backend, 4, 16)
    assert backend.max_context_len == CONTEXT and state.state != "failed" and len(backend.shapes) == 1


@pytest.mark.parametrize("max_bs, reachable", [(409, True), (410, False)])
def test_rows_stay_within_32_bit_offsets(max_bs, reachable):
    """The kernel multiplies row and width in int32: 5 * 8 * (131072 + 5) indices per request."""
    backend = Backend(topk=8, steps=5, context=131072)
    state = call(backend, max_bs, 8 * max_bs)
    assert (len(backend.shapes), backend.shapes[0][1]) == (1, max_bs * (8 * 131077 if reachable else 131072))
    assert (state.state == "failed") is not reachable


def test_a_backend_that_came_out_of_it_is_the_engines_own():
    """No attribute of ours stays on it."""
    backend = SimpleNamespace(topk=2, speculative_num_steps=3, max_context_len=8)
    before = dict(vars(backend))

    def init_cuda_graph_state(self, max_bs, max_num_tokens):
        pass

    one_call.run(TARGET, init_cuda_graph_state, FixState(FIX), backend, 1, 2)
    assert vars(backend) == before
