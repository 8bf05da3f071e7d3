"""The torch reference of the kernel ops on CPU, against float64, and that it never waits for a device."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings

import tests.support.kernel_cases as cases
from attnfix.kernels import fixup_zero_kv_rows, kernel_status, merge_attn_states, reference, register_torch_ops
from tests.support.no_sync import NoSync

NAN, INF = float("nan"), float("inf")


@settings(deadline=None, max_examples=200)
@given(cases.fixup_cases())
def test_fixup_matches_the_oracle(case: cases.FixupCase) -> None:
    cases.run_fixup_case(case, fixup_zero_kv_rows)


@settings(deadline=None, max_examples=300)
@given(cases.merge_cases())
def test_merge_matches_float64(case: cases.MergeCase) -> None:
    cases.run_merge_case(case, merge_attn_states)


# ---- the table of empty and NaN cases, by hand --------------------------------------------------------------------


def merge_one(x: float, s: float, prefix: float, suffix: float, **options) -> tuple[float, float]:
    """Merge one token of one head whose rows hold one value each; returns its first value and its LSE."""
    output = torch.full((1, 1, 8), 77.0)
    lse = torch.full((1, 1), 77.0)
    values = [torch.full((1, 1, 8), v) for v in (prefix, suffix)]
    merge_attn_states(output, values[0], torch.tensor([[x]]), values[1], torch.tensor([[s]]), lse, **options)
    assert torch.equal(cases.bits(output), cases.bits(output[:, :, :1].expand(1, 1, 8)))
    return output[0, 0, 0].item(), lse.item()


@pytest.mark.parametrize("no_x", [INF, -INF])
@pytest.mark.parametrize("no_s", [INF, -INF])
def test_both_sides_empty_is_zero_and_minus_infinity(no_x: float, no_s: float) -> None:
    assert merge_one(no_x, no_s, NAN, INF) == (0.0, -INF)


@pytest.mark.parametrize("infinity", [INF, -INF])
@pytest.mark.parametrize("garbage", [NAN, INF, 1e30])
def test_one_empty_side_copies_the_other(infinity: float, garbage: float) -> None:
    assert merge_one(infinity, 1.5, garbage, -3.0) == (-3.0, 1.5)
    assert merge_one(1.5, infinity, -3.0, garbage) == (-3.0, 1.5)


def test_extreme_finite_lse_stays_finite() -> None:
    assert merge_one(3e38, -3e38, 2.0, 5.0) == (2.0, pytest.approx(3e38))
    assert merge_one(-3e38, -3e38, 2.0, 4.0)[0] == 3.0


def test_nan_lse_is_not_an_empty_side() -> None:
    out, lse = merge_one(NAN, 1.0, 2.0, 3.0)
    assert out != out and lse != lse


def test_base_2() -> None:
    out, lse = merge_one(3.0, 3.0, 2.0, 4.0, lse_base=2)
    assert (out, lse) == (3.0, pytest.approx(4 * 0.6931471805599453))
    assert merge_one(-INF, 2.0, NAN, 4.0, lse_base=2) == (4.0, pytest.approx(2 * 0.6931471805599453))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("context", [0, 3, 7, None])
def test_tokens_without_context_are_the_suffix_bit_for_bit(context: int | None, in_place: bool) -> None:
    g = torch.Generator().manual_seed(3)
    suffix, prefix = (torch.randn(7, 4, 16, generator=g).bfloat16() for _ in "sp")
    suffix_lse, prefix_lse = (torch.randn(4, 7, generator=g) for _ in "sp")
    suffix_lse[0, -1], suffix_lse[1, -1] = INF, -INF
    start = 7 if context is None else context
    prefix[start:] = torch.tensor([NAN, INF, -INF, 1e9]).bfloat16().repeat(4)
    prefix_lse[:, start:] = torch.tensor([NAN, INF, -INF, 88.0])[:, None]
    before, before_lse = suffix.clone(), suffix_lse.clone()
    output = suffix if in_place else torch.full_like(suffix, NAN)
    lse = torch.full_like(suffix_lse, NAN)
    merge_attn_states(output, prefix, prefix_lse, suffix, suffix_lse, lse, context)
    assert torch.equal(cases.bits(output[start:]), cases.bits(before[start:]))
    assert torch.equal(cases.bits(lse[:, start:]), cases.bits(before_lse[:, start:]))
    assert output[:start].isfinite().all() and (start == 0 or not torch.equal(output[:start], before[:start]))


def test_fp8_saturates_and_keeps_nan() -> None:
    values = torch.tensor([1e4, -1e4, 448.0, 460.0, INF, -INF, NAN, 0.3]).reshape(1, 1, 8)
    output = torch.zeros(1, 1, 8).to(torch.float8_e4m3fn)
    empty, full = torch.tensor([[-INF]]), torch.tensor([[0.0]])
    merge_attn_states(output, values, full, values, empty, None, None, torch.tensor([1.0]))
    got = output.float().flatten().tolist()
    assert got[:6] == [448.0, -448.0, 448.0, 448.0, 448.0, -448.0] and got[6] != got[6] and got[7] == 0.3125


def test_kv_lens_hide_the_prefix() -> None:
    """Rows of requests without KV equal a merge whose prefix LSE is -inf there; the hidden rows are all NaN."""
    g = torch.Generator().manual_seed(1)
    prefix, suffix = (torch.randn(9, 2, 8, generator=g) for _ in "ps")
    prefix_lse, suffix_lse = (torch.randn(2, 9, generator=g) for _ in "ps")
    want, got = torch.empty_like(prefix), torch.empty_like(prefix)
    hidden = prefix_lse.clone()
    hidden[:, 2:5] = -INF
    merge_attn_states(want, prefix, hidden, suffix, suffix_lse)
    prefix[2:5], prefix_lse[:, 2:5] = NAN, NAN
    kv_lens, cum = torch.tensor([4, 0, 0, 1]), torch.tensor([0, 2, 2, 5, 7])
    merge_attn_states(got, prefix, prefix_lse, suffix, suffix_lse, kv_lens=kv_lens, cum_seq_lens=cum)
    assert torch.equal(got, want)


# ---- sabotage: the shared checks notice a wrong op -----------------------------------------------------------------

FIXUP = cases.FixupCase(
    (3, 2, 4), (0, 5, 0), 2, 16, torch.bfloat16, "padded", "transposed", 2, False, (torch.int32,) * 2, 1, 11
)
MERGE = cases.MergeCase(
    tokens=12,
    heads=2,
    head_size=16,
    dtype=torch.bfloat16,
    layouts=("padded",) * 3,
    lse_layouts=("plain",) * 3,
    in_place="",
    context="middle",
    with_lse=True,
    fp8=False,
    base2=False,
    kv_lens=(0, 5, 0),
    empty=0.3,
    spread=2.0,
    seed=4,
)


def _one_row_missed(out, lse, kv_lens, cum_seq_lens, **_) -> None:
    fixup_zero_kv_rows(out[1:], lse[1:], kv_lens, (cum_seq_lens - 1).clamp(min=0).to(cum_seq_lens.dtype))


def _wrong_fill(out, lse, kv_lens, cum_seq_lens, **_) -> None:
    fixup_zero_kv_rows(out, lse, kv_lens, cum_seq_lens)
    lse.masked_fill_(lse == -INF, INF)


def _touches_padding(out, lse, kv_lens, cum_seq_lens, **_) -> None:
    fixup_zero_kv_rows(out, lse, kv_lens, cum_seq_lens)
    out[-1] = 0


@pytest.mark.parametrize("op", [lambda *a, **k: None, _one_row_missed, _wrong_fill, _touches_padding])
def test_fixup_sabotage_is_noticed(op) -> None:
    cases.run_fixup_case(FIXUP, fixup_zero_kv_rows)
    with pytest.raises(AssertionError):
        cases.run_fixup_case(FIXUP, op)


def _no_context(*args, **options) -> None:
    merge_attn_states(*args[:6], None, args[7], **options)


def _reads_hidden(*args, **options) -> None:
    merge_attn_states(*args, lse_base=options["lse_base"])


def _writes_beside(*args, **options) -> None:
    merge_attn_states(*args, **options)
    args[0]._base[-1] = 5


def _swapped(output, prefix, prefix_lse, suffix, suffix_lse, *rest, **options) -> None:
    merge_attn_states(output, suffix, prefix_lse, prefix, suffix_lse, *rest, **options)


@pytest.mark.parametrize("op", [lambda *a, **k: None, _no_context, _reads_hidden, _writes_beside, _swapped])
def test_merge_sabotage_is_noticed(op) -> None:
    cases.run_merge_case(MERGE, merge_attn_states)
    with pytest.raises(AssertionError):
        cases.run_merge_case(MERGE, op)


# ---- no host sync ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fp8", [False, True])
def test_no_host_sync(fp8: bool) -> None:
    m = cases.merge_inputs(cases.MergeCase(**{**MERGE.__dict__, "fp8": fp8}))
    out, lse = torch.randn(9, 2, 8), torch.randn(9, 2)
    lens, cum = torch.tensor([0, 3]), torch.tensor([0, 4, 9])
    with NoSync():
        m.call(merge_attn_states)
        fixup_zero_kv_rows(out, lse, lens, cum)
        fixup_zero_kv_rows(out, lse, None, cum, cum_kv_lens=torch.tensor([0, 0, 3]))
    with pytest.raises(AssertionError, match="host sync"), NoSync():
        out[0, 0, 0].item()


@pytest.mark.parametrize("fp8", [False, True])
def test_fallback_moves_nothing_between_devices(fp8: bool) -> None:
    """On a device without data: reading a value, or mixing in a CPU tensor, raises there."""

    def dev(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    with NoSync():
        lens, cum = dev(3, dtype=torch.int32), dev(4, dtype=torch.int32)
        out = dev(9, 2, 8, dtype=torch.float8_e4m3fn if fp8 else torch.bfloat16)
        sides = [x for _ in "ps" for x in (dev(9, 2, 8, dtype=torch.bfloat16), dev(2, 9))]
        scale = dev(1) if fp8 else None
        reference.merge_attn_states(out, *sides, dev(2, 9), 4, scale, lens, cum, True)
        reference.fixup_zero_kv_rows(sides[0], dev(9, 2), lens, cum, False)
        reference.fixup_zero_kv_rows(sides[0], dev(9, 2), cum, cum, True)


# ---- package and torch.ops ------------------------------------------------------------------------------------------


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_lazy() -> None:
    assert run_python("import sys, attnfix.kernels as k; k.kernel_status(); print('torch' in sys.modules)") == "False\n"


def test_status_counts_calls_by_path() -> None:
    out = run_python(
        "import torch; from attnfix.kernels import *\n"
        "print(kernel_status()['merge_attn_states'])\n"
        "fixup_zero_kv_rows(torch.ones(2, 1, 8), torch.ones(2, 1), torch.tensor([0]), torch.tensor([0, 2]))\n"
        "fixup_zero_kv_rows(torch.ones(0, 1, 8), torch.ones(0, 1), torch.tensor([0]), torch.tensor([0, 0]))\n"
        "print(kernel_status()['fixup_zero_kv_rows'])"
    )
    unused, used = out.splitlines()
    assert unused == "{'path': 'unused', 'reason': None, 'launches': {'cuda': 0, 'reference': 0}}"
    assert used == ("{'path': 'reference', 'reason': 'the tensors are on cpu', 'launches': {'cuda': 0, 'reference': 1}}")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_counts_for_itself() -> None:
    before = kernel_status()["fixup_zero_kv_rows"]["launches"]["reference"]
    fixup_zero_kv_rows(torch.ones(2, 1, 8), torch.ones(2, 1), torch.tensor([0]), torch.tensor([0, 2]))
    assert kernel_status()["fixup_zero_kv_rows"]["launches"]["reference"] == before + 1
    child = os.fork()
    if child == 0:
        os._exit(kernel_status()["fixup_zero_kv_rows"]["launches"]["reference"])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_torch_ops_are_registered_with_correct_schemas() -> None:
    register_torch_ops()
    register_torch_ops()
    checks = ("test_schema", "test_faketensor")
    m = cases.merge_inputs(MERGE)
    options = dict(kv_lens=m.kv_lens, cum_seq_lens=m.cum_seq_lens, lse_base="2")
    args = (m.output, m.prefix.nan_to_num(), m.prefix_lse, m.suffix.nan_to_num(), m.suffix_lse, m.output_lse, 5, None)
    torch.library.opcheck(torch.ops.attnfix.merge_attn_states.default, args, options, test_utils=checks)
    args = (torch.randn(5, 2, 8), torch.randn(5, 2), torch.tensor([0, 3]), torch.tensor([0, 2, 4]))
    torch.library.opcheck(torch.ops.attnfix.fixup_zero_kv_rows.default, args, test_utils=checks)
    cases.run_merge_case(MERGE, torch.ops.attnfix.merge_attn_states)
    cases.run_fixup_case(FIXUP, torch.ops.attnfix.fixup_zero_kv_rows)


def test_torch_compile_traces_the_ops() -> None:
    register_torch_ops()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(out, lse, lens, cum):
        torch.ops.attnfix.fixup_zero_kv_rows(out, lse.t(), lens, cum)
        return out + 1

    out, lse = torch.ones(4, 1, 8), torch.ones(1, 4)
    result = step(out, lse, torch.tensor([0, 2]), torch.tensor([0, 3, 4]))
    assert result[:3].eq(1).all() and result[3].eq(2).all() and lse.tolist() == [[-INF, -INF, -INF, 1.0]]


def test_in_place_where_the_stride_of_a_single_head_differs():
    """Strides of dimensions of size 1 mean nothing to the checks; torch's copy refused such a pair."""
    output = torch.randn(9, 64).as_strided((9, 1, 64), (64, 576, 1))
    suffix, prefix = output.as_strided((9, 1, 64), (64, 64, 1)), torch.randn(9, 1, 64)
    expected = suffix.clone()
    merge_attn_states(output, prefix, torch.zeros(1, 9), suffix, torch.zeros(1, 9), prefill_tokens_with_context=0)
    assert torch.equal(output, expected)
