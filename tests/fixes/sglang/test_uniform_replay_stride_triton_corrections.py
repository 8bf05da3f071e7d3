"""sglang.uniform-replay-stride-triton without an engine: what replay is shown, what it may not touch, what it costs."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfix.patches.sglang.uniform_replay_stride_triton.fix import FIX
from tests.fixes.sglang.test_uniform_replay_stride_mla_corrections import (
    ROOM,
    a_hundred_replays_allocate_once,
    other_modes_pass_untouched,
    shown_to_the_engine,
)


def backend_of(steps):
    return SimpleNamespace(speculative_num_steps=steps, qo_indptr=torch.zeros(ROOM + 1, dtype=torch.int32))


@given(st.integers(1, ROOM), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_the_engine_is_shown_the_stride(bs, steps):
    shown_to_the_engine(FIX, backend_of(steps), steps + 1, bs)


def test_other_modes_pass_untouched():
    other_modes_pass_untouched(FIX, backend_of(3))


def test_a_hundred_replays_allocate_once():
    a_hundred_replays_allocate_once(FIX, backend_of(3))
