"""vllm.dcp-empty-shard without an engine: which rows become neutral, which calls are left alone, and a result that is unfit."""

from __future__ import annotations

import math
from types import SimpleNamespace

import one_call
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from no_sync import NoSync
from test_zero_kv_rows import Wrapped

from attnfix.compat.states import PlainCounters
from attnfix.patches.vllm.dcp_empty_shard import wrap

HEADS, DIM = 3, 8


def result(rows):
    return torch.full((rows, HEADS, DIM), math.nan), torch.full((rows, HEADS), 7.0)


def metadata(lens):
    return SimpleNamespace(decode=SimpleNamespace(seq_lens=torch.tensor(lens, dtype=torch.int32)))


def on(ranks):
    return SimpleNamespace(dcp_world_size=ranks)


LENS = st.lists(st.integers(0, 2), min_size=1, max_size=6)


@given(LENS, st.integers(1, 3))
@settings(deadline=None)
def test_rows_of_requests_without_kv_weigh_nothing(lens, queries):
    out, lse = given_out, given_lse = result(len(lens) * queries)
    wrapped, batch = Wrapped((out, lse)), metadata(lens)
    with NoSync(batch.decode.seq_lens):
        found = one_call.corrected(wrap.decode, wrapped, on(2), (None, None, batch, None), {})
    assert found[0] is given_out and found[1] is given_lse and len(wrapped.rows) == 1
    for row, n in enumerate(n for n in lens for _ in range(queries)):
        assert bool((out[row] == 0).all()) is (n == 0) and bool((lse[row] == -math.inf).all()) is (n == 0)
        assert n == 0 or (out[row].isnan().all() and (lse[row] == 7).all())


@pytest.mark.parametrize("ranks, lse", [(1, True), (-1, True), (None, True), (2, False)])
def test_one_rank_and_a_kernel_without_an_lse_are_left_alone(ranks, lse):
    out, base = result(2)
    engines = (out, base if lse else None)
    wrapped = Wrapped(engines)
    assert one_call.corrected(wrap.decode, wrapped, on(ranks), (None, None, metadata([0, 1]), None), {}) is engines
    assert out.isnan().all() and (base == 7).all() and not wrapped.rows


def test_rows_that_are_no_multiple_of_the_requests_are_left_alone():
    out, lse = result(3)
    wrapped = Wrapped((out, lse))
    one_call.corrected(wrap.decode, wrapped, on(2), (None, None, metadata([0, 1]), None), {})
    assert out.isnan().all() and not wrapped.rows


def test_metadata_of_another_form_leaves_the_engines_result():
    failures = []
    state = SimpleNamespace(counters=PlainCounters(), fired=True, confirm=None, fail=failures.append)
    engines = result(2)
    args = None, None, SimpleNamespace(decode=None), None
    assert one_call.run(Wrapped(engines), state, wrap.decode, on(2), args, {}) is engines
    assert len(failures) == 1 and "seq_lens" in failures[0] and state.counters.corrections == 0
