"""vllm.dcp-empty-shard: which rows become neutral without an engine, and which backends are corrected on real layers."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from attnfix import kernels
from attnfix.compat.releases import fetch
from attnfix.compat.status.fix_state import EFFECTIVE, FAILED, FIXED_UPSTREAM, INSTALLED, FixState
from attnfix.patches.vllm.dcp_empty_shard.fix import FIX
from attnfix.patches.vllm.dcp_empty_shard.wrap import ALL_GATHER, ALL_TO_ALL, leaves_out
from tests.support import one_call
from tests.support.no_sync import NoSync

HEADS, DIM = 3, 8
TRITON, CUTLASS, *_ = FIX.targets


def result(rows):
    return torch.full((rows, HEADS, DIM), math.nan), torch.full((rows, HEADS), 7.0)


def metadata(lens):
    return SimpleNamespace(decode=SimpleNamespace(seq_lens=torch.tensor(lens, dtype=torch.int32)))


def state_on(release="0.24.0"):
    state = FixState(FIX)
    state.fired, state.release = True, release
    return state


def kernel(result):
    def forward_mqa(self, q, kv_c_and_k_pe_cache, attn_metadata, layer):
        return result

    return forward_mqa


def decode(result, state, instance, batch, layer=None, target=CUTLASS):
    """What the engine gets for the kernel's `result`."""
    return one_call.run(target, kernel(result), state, instance, None, None, batch, layer)


def on(ranks):
    return SimpleNamespace(dcp_world_size=ranks)


LENS = st.lists(st.integers(0, 2), min_size=1, max_size=6)


@given(LENS, st.integers(1, 3))
@settings(deadline=None)
def test_rows_of_requests_without_kv_weigh_nothing(lens, queries):
    out, lse = given_out, given_lse = result(len(lens) * queries)
    state, batch = state_on(), metadata(lens)
    with NoSync(batch.decode.seq_lens):
        found = decode((out, lse), state, on(2), batch)
    assert found[0] is given_out and found[1] is given_lse and state.counters.corrections == 1
    for row, n in enumerate(n for n in lens for _ in range(queries)):
        assert bool((out[row] == 0).all()) is (n == 0) and bool((lse[row] == -math.inf).all()) is (n == 0)
        assert n == 0 or (out[row].isnan().all() and (lse[row] == 7).all())


@pytest.mark.parametrize("ranks, lse", [(1, True), (-1, True), (None, True), (2, False)])
def test_one_rank_and_a_kernel_without_an_lse_are_left_alone(ranks, lse):
    out, base = result(2)
    engines, state = (out, base if lse else None), state_on()
    assert decode(engines, state, on(ranks), metadata([0, 1])) is engines
    assert out.isnan().all() and (base == 7).all() and not state.counters.corrections


def test_rows_that_are_no_multiple_of_the_requests_are_left_alone():
    (out, lse), state = result(3), state_on()
    decode((out, lse), state, on(2), metadata([0, 1]))
    assert out.isnan().all() and not state.counters.corrections


def test_metadata_of_another_form_leaves_the_engines_result():
    state, engines = state_on(None), result(2)
    function = one_call.wrapper(CUTLASS, kernel(engines), state).function
    assert function(on(2), None, None, SimpleNamespace(decode=None), None) is engines
    assert state.state == FAILED and "seq_lens" in state.reason and state.counters.corrections == 0


CASES = [
    # release, --dcp-comm-backend, Triton's kernel: whether the output is masked, whether the LSE is
    ("0.24.0", False, False, True, True), ("0.24.0", False, True, True, False), ("0.24.0", True, False, True, True),
    ("0.25.0", False, False, False, True), ("0.25.0", True, False, True, True), ("0.27.1", True, True, True, False),
    ("0.25.1", False, True, False, False),
]  # fmt: skip


@pytest.mark.parametrize("release, a2a, triton, masks_out, masks_lse", CASES)
def test_no_more_is_masked_than_the_combine_needs(release, a2a, triton, masks_out, masks_lse):
    state, engines, layer = state_on(release), result(2), SimpleNamespace(dcp_a2a=a2a)
    for _ in range(2):
        out, lse = decode(engines, state, on(2), metadata([0, 1]), layer, TRITON if triton else CUTLASS)
    assert bool((out[0] == 0).all()) is masks_out and bool((lse[0] == -math.inf).all()) is masks_lse
    assert state.counters.corrections == (2 if masks_out or masks_lse else 0) and len(state.observations) == 1


def test_one_backend_that_needs_nothing_does_not_speak_for_another():
    state, batch = state_on("0.25.1"), metadata([0, 1])
    state.settle(INSTALLED, "code of 0.25.1")
    decode(result(2), state, type("TritonMLAImpl", (), {"dcp_world_size": 2})(), batch, target=TRITON)
    assert state.state == FIXED_UPSTREAM
    decode(result(2), state, type("CutlassMLAImpl", (), {"dcp_world_size": 2})(), batch)
    assert state.state == EFFECTIVE


class Passes(TorchDispatchMode):
    """Every operator that gets as many numbers as the output has, but for views."""

    def __init__(self, out):
        super().__init__()
        self.size, self.seen = out.numel(), []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        written = function._schema.is_mutable or function.overloadpacket.__name__ in ("eq", "where", "mul")
        if written and any(isinstance(one, torch.Tensor) and one.numel() >= self.size for one in args):
            self.seen.append(function.overloadpacket.__name__)
        return function(*args, **kwargs or {})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("target", [TRITON, CUTLASS])
def test_the_output_is_written_in_empty_rows_alone(monkeypatch, target, queries, dtype):
    """The kernel is emulated: that of a GPU costs for empty rows. Its bits are those of a mask over all rows."""
    lens, launches = torch.tensor([0, 2, 0, 1], dtype=torch.int32), []

    def fixup_zero_kv_rows(out, lse, kv_lens, cum_seq_lens):
        launches.append(cum_seq_lens.tolist())
        for b in (kv_lens == 0).nonzero().flatten().tolist():
            rows = slice(cum_seq_lens[b], cum_seq_lens[b + 1])
            out[rows], lse[rows] = 0, -math.inf

    monkeypatch.setattr(kernels, "fixup_zero_kv_rows", fixup_zero_kv_rows, raising=False)
    rows, state = len(lens) * queries, state_on()
    out, lse = torch.randn(rows, HEADS, DIM).to(dtype), torch.randn(rows, HEADS).to(dtype)
    empty = (lens == 0).repeat_interleave(queries)
    wanted = out.masked_fill(empty[:, None, None], 0), lse.masked_fill(empty[:, None], -math.inf)
    if target is TRITON:
        wanted = wanted[0], lse.clone()  # its kernel has written that by itself
    with Passes(out) as passes:
        found = decode((out, lse), state, on(2), SimpleNamespace(decode=SimpleNamespace(seq_lens=lens)), target=target)
    assert passes.seen == [] and launches == [[b * queries for b in range(len(lens) + 1)]]
    assert all(one.equal(other) for one, other in zip(found, wanted))


@pytest.mark.parametrize("heads, size", [(257, 8), (3, 12), (3, 584)])
def test_an_output_that_the_kernel_does_not_take_is_masked(heads, size):
    out, lse, state = torch.full((2, heads, size), math.nan), torch.zeros(2, heads), state_on()
    decode((out, lse), state, on(2), metadata([0, 1]))
    assert (out[0] == 0).all() and out[1].isnan().all() and (lse[0] == -math.inf).all() and (lse[1] == 0).all()


TRITON_BACKEND, CUTLASS_BACKEND = "triton_mla.TritonMLABackend", "cutlass_mla.CutlassMLABackend"
FLASHINFER, TOKENSPEED = "flashinfer_mla.FlashInferMLABackend", "tokenspeed_mla.TokenspeedMLABackend"
SHORT = (1, 37, 1, 12)  # the first and the third leave a rank without KV

#: Runs each case; says its error, its exact bits, how many corrections it took, and what was made neutral
RUN = """
import torch
import attnfix
from attnfix.patches.lab.vllm.mla_decode import Decode, Empty
from attnfix.patches.lab.proof import observe

from attnfix.patches.vllm.dcp_empty_shard import wrap

masked, neutralize = set(), wrap.neutralize
def spied(out, lse, *args):
    masked.update(name for name, tensor in (("out", out), ("lse", lse)) if tensor is not None)
    neutralize(out, lse, *args)
wrap.neutralize = spied

def row():
    return next(row for row in attnfix.status() if row["fix"] == "vllm.dcp-empty-shard")

said = []
for backend, combine, empty in CASES:
    masked.clear()
    before = row()["counters"]["corrections"]
    seen = observe(*Decode(backend, tokens=SHORT, combine=combine, empty=Empty(*empty)).run(20))
    after = row()
    error = seen.error if seen.error < 1e9 else None
    said.append([error, seen.bits, after["counters"]["corrections"] - before, sorted(masked), after["state"], after["reason"]])
answer(said)
"""
GARBAGE, NAN = ("garbage", "garbage"), ("nan", "garbage")


def ran(engine_fork, release, *cases, **environment):
    code = f"CASES, SHORT = {list(cases)!r}, {SHORT!r}\n{RUN}"
    return engine_fork("vllm", release).evaluate(code, **environment)


def test_each_backend_is_corrected_where_it_is_wrong_and_no_more(engine_fork):
    right = TRITON_BACKEND, "ag_rs", GARBAGE
    wrong = (
        (TRITON_BACKEND, "a2a", GARBAGE),
        (CUTLASS_BACKEND, "ag_rs", GARBAGE),
        (CUTLASS_BACKEND, "ag_rs", NAN),
        (TOKENSPEED, "ag_rs", GARBAGE),
        (FLASHINFER, "a2a", ("nan", "-inf")),  # what FlashInfer says of trtllm-gen's kernel
    )
    (stock_right, *stock), (left, *fixed) = (ran(engine_fork, "0.27.1", right, *wrong, **off) for off in ({"ATTNFIX": "0"}, {}))
    _, bits, corrections, masked, state, reason = left
    assert stock_right[0] < 0.01 and bits == stock_right[1] and corrections == 0 and masked == []
    assert state == "fixed upstream" and "TritonMLAImpl all-gather" in reason
    assert all(error is None or error > 0.05 for error, *_ in stock)
    assert all(error is not None and error < 0.01 and corrections > 0 for error, _, corrections, *_ in fixed), fixed
    # The LSE is enough but for the all-to-all; and Triton's kernel has written it
    assert [masked for *_, masked, _state, _reason in fixed] == [["out"], ["lse"], ["lse"], ["lse"], ["lse", "out"]]
    assert {state for *_, state, _reason in fixed} == {"effective"}


def test_before_0_25_the_output_is_masked_too(engine_fork):
    cases = (TRITON_BACKEND, "ag_rs", GARBAGE), (CUTLASS_BACKEND, "ag_rs", NAN)
    stock, fixed = (ran(engine_fork, "0.19.1", *cases, **off) for off in ({"ATTNFIX": "0"}, {}))
    assert [error for error, *_ in stock] == [None] * 2
    assert all(error is not None and error < 0.01 for error, *_ in fixed), fixed
    assert [masked for *_, masked, _state, _reason in fixed] == [["out"], ["lse", "out"]]


@pytest.mark.parametrize("release", ["0.11.0", "0.22.1", "0.24.0", "0.25.0", "0.27.1"])
def test_what_the_combines_do_with_a_weight_of_0(release):
    homes = [fetch.fetch("vllm", release) / "vllm" / folder for folder in ("v1/attention/ops", "attention/ops")]
    texts = {path.name: path.read_text() for home in homes for path in home.glob("*.py")}
    assert ("output = tl.where(factor == 0.0, 0.0, output)" in texts["common.py"]) is leaves_out(ALL_GATHER, release)
    assert ("weight == 0.0, 0.0" in texts.get("dcp_alltoall.py", "")) is leaves_out(ALL_TO_ALL, release)
