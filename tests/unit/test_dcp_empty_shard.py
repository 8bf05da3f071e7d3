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

from attnfix.compat.states import EFFECTIVE, FIXED_UPSTREAM, INSTALLED, FixState
from attnfix.patches.vllm.dcp_empty_shard import FIX, wrap

HEADS, DIM = 3, 8


def result(rows):
    return torch.full((rows, HEADS, DIM), math.nan), torch.full((rows, HEADS), 7.0)


def metadata(lens):
    return SimpleNamespace(decode=SimpleNamespace(seq_lens=torch.tensor(lens, dtype=torch.int32)))


class OnRelease(Wrapped):
    """The same, with what the wrapper knows of the code and of kernels."""

    def __init__(self, result, release="0.24.0"):
        super().__init__(result)
        self.state = FixState(FIX)
        self.state.release, self.found = release, self.state.found

    def finding(self, path):
        return self.state.findings.get(path)


def on(ranks):
    return SimpleNamespace(dcp_world_size=ranks)


LENS = st.lists(st.integers(0, 2), min_size=1, max_size=6)


@given(LENS, st.integers(1, 3))
@settings(deadline=None)
def test_rows_of_requests_without_kv_weigh_nothing(lens, queries):
    out, lse = given_out, given_lse = result(len(lens) * queries)
    wrapped, batch = OnRelease((out, lse)), metadata(lens)
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
    wrapped = OnRelease(engines)
    assert one_call.corrected(wrap.decode, wrapped, on(ranks), (None, None, metadata([0, 1]), None), {}) is engines
    assert out.isnan().all() and (base == 7).all() and not wrapped.rows


def test_rows_that_are_no_multiple_of_the_requests_are_left_alone():
    out, lse = result(3)
    wrapped = OnRelease((out, lse))
    one_call.corrected(wrap.decode, wrapped, on(2), (None, None, metadata([0, 1]), None), {})
    assert out.isnan().all() and not wrapped.rows


def test_metadata_of_another_form_leaves_the_engines_result():
    failures = []
    state = FixState(FIX)
    state.fired, state.fail = True, failures.append
    engines = result(2)
    args = None, None, SimpleNamespace(decode=None), None
    assert one_call.run(Wrapped(engines), state, wrap.decode, on(2), args, {}) is engines
    assert len(failures) == 1 and "seq_lens" in failures[0] and state.counters.corrections == 0


CASES = [
    # release, --dcp-comm-backend, Triton's kernel: whether the output is masked, whether the LSE is
    ("0.24.0", False, False, True, True), ("0.24.0", False, True, True, False), ("0.24.0", True, False, True, True),
    ("0.25.0", False, False, False, True), ("0.25.0", True, False, True, True), ("0.27.1", True, True, True, False),
    ("0.25.1", False, True, False, False),
]  # fmt: skip


@pytest.mark.parametrize("release, a2a, triton, masks_out, masks_lse", CASES)
def test_no_more_is_masked_than_the_combine_needs(release, a2a, triton, masks_out, masks_lse):
    wrapped, correction = OnRelease(result(2), release), wrap.decode_with_lse if triton else wrap.decode
    args = None, None, metadata([0, 1]), SimpleNamespace(dcp_a2a=a2a)
    for _ in range(2):
        out, lse = one_call.corrected(correction, wrapped, on(2), args, {})
    assert bool((out[0] == 0).all()) is masks_out and bool((lse[0] == -math.inf).all()) is masks_lse
    assert len(wrapped.rows) == (2 if masks_out or masks_lse else 0) and len(wrapped.state.findings) == 1


def test_one_backend_that_needs_nothing_does_not_speak_for_another():
    wrapped, args = OnRelease(result(2), "0.25.1"), (None, None, metadata([0, 1]), None)
    wrapped.state.settle(INSTALLED, "code of 0.25.1")
    wrapped.state.counters.calls = 1
    one_call.corrected(wrap.decode_with_lse, wrapped, type("TritonMLAImpl", (), {"dcp_world_size": 2})(), args, {})
    assert wrapped.state.state == FIXED_UPSTREAM
    one_call.corrected(wrap.decode, wrapped, type("CutlassMLAImpl", (), {"dcp_world_size": 2})(), args, {})
    assert wrapped.state.state == EFFECTIVE
