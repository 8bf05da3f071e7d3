"""The compiled kernels on a GPU. Every test asserts that the CUDA path ran: the fallback counts as a failure here."""

from __future__ import annotations

import itertools
import os

import pytest
import torch
from hypothesis import given, settings

import tests.support.kernel_cases as cases
from attnfix.kernels import fixup_zero_kv_rows, merge_attn_states
from tests.support.launch_counts import cuda_launches

#: scripts/bench/gpu_evidence.sh asks for more
CASES = int(os.environ.get("ATTNFIX_GPU_CASES", 1200))
LAUNCHES = int(os.environ.get("ATTNFIX_GPU_LAUNCHES", 16_000))
INF = float("inf")
BF16 = torch.bfloat16


# ---- the cases of the CPU tests -------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=CASES // 3)
@given(cases.fixup_cases())
def test_fixup_matches_the_oracle(case: cases.FixupCase) -> None:
    with cuda_launches(fixup=1 if case.tokens and case.query_lens else 0):
        cases.run_fixup_case(case, fixup_zero_kv_rows, "cuda")


@settings(deadline=None, max_examples=CASES - CASES // 3)
@given(cases.merge_cases())
def test_merge_matches_float64(case: cases.MergeCase) -> None:
    with cuda_launches(merge=1 if case.tokens else 0):
        cases.run_merge_case(case, merge_attn_states, "cuda")


def test_every_combination_of_layouts() -> None:
    """Each tensor's strides are its own: all layouts of output, prefix and suffix against each other."""
    layouts = list(itertools.product(cases.VALUE_LAYOUTS, repeat=3))
    with cuda_launches(merge=len(layouts)):
        for seed, names in enumerate(layouts):
            lse = tuple(cases.LSE_LAYOUTS[(seed + i) % 3] for i in range(3))
            dtype = cases.DTYPES[seed % 3]
            case = cases.MergeCase(9, 3, 24, dtype, names, lse, "", "middle", True, False, False, (0, 4), 0.3, 2.0, seed)
            cases.run_merge_case(case, merge_attn_states, "cuda")


@pytest.mark.parametrize("head_size", [8, 16, 40, 128, 192, 320, 512, 576])
@pytest.mark.parametrize("heads", [1, 7, 128, 256])
def test_sizes(heads: int, head_size: int) -> None:
    merge = cases.MergeCase(
        *(77, heads, head_size, BF16, ("plain",) * 3, ("plain",) * 3, "", "middle", True, False, True),
        *((0, 4, 0), 0.2, 2.0, 1),
    )
    lens = (5, 0, 30, 1, 9), (0, 7, 0, 3, 0)
    fixup = cases.FixupCase(*(*lens, heads, head_size, BF16, "plain", "transposed", 3, False, (torch.int32,) * 2, 1, 2))
    with cuda_launches(fixup=1, merge=1):
        cases.run_merge_case(merge, merge_attn_states, "cuda")
        cases.run_fixup_case(fixup, fixup_zero_kv_rows, "cuda")


@pytest.mark.parametrize("requests", [1, 255, 1024, 1025, 3000, 5000])
def test_many_requests(requests: int) -> None:
    """More requests than one block looks at together."""
    g = torch.Generator().manual_seed(requests)
    query = torch.randint(0, 5, (requests,), generator=g).tolist()
    kv = torch.randint(0, 2, (requests,), generator=g).tolist()
    ints = (torch.int32,) * 2
    case = cases.FixupCase(tuple(query), tuple(kv), 2, 64, BF16, "plain", "transposed", 5, False, ints, 1, 3)
    with cuda_launches(fixup=1):
        cases.run_fixup_case(case, fixup_zero_kv_rows, "cuda")


# ---- memory ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads_first", [False, True])
@pytest.mark.parametrize("padded", [0, 8, 1])  # dense, strided, scalar
@pytest.mark.parametrize(
    "offsets", [(5, -(2**31)), (2**31 - 1, -(2**31)), (9, 0, 9, -1), (-7, 10**6, 3), (0, 9) * 99, (9, 0, 2**31 - 1) * 99]
)
def test_offsets_that_are_none_write_nothing_outside(offsets: tuple[int, ...], padded: int, heads_first: bool) -> None:
    """Their differences overflow 32 bits, and their rows are more than there are tokens."""
    buffer = torch.full((3, 9, 2, 8 + padded), 7.0, device="cuda", dtype=BF16)
    lse = torch.full((3, 2, 9) if heads_first else (3, 9, 2), 7.0, device="cuda")
    lens = torch.zeros(len(offsets) - 1, dtype=torch.int32, device="cuda")
    cum = torch.tensor(offsets, dtype=torch.int32).cuda()
    with cuda_launches(fixup=1):
        fixup_zero_kv_rows(buffer[1, ..., :8], lse[1].t() if heads_first else lse[1], kv_lens=lens, cum_seq_lens=cum)
        torch.cuda.synchronize()
    assert (buffer[::2] == 7).all() and (buffer[1, ..., 8:] == 7).all() and (lse[::2] == 7).all()


def test_skewed_and_padded_batch_leaves_other_rows_alone() -> None:
    lens = [16384] + [16] * 63
    cum = torch.tensor([sum(lens[:i]) for i in range(65)], device="cuda", dtype=torch.int32)
    kv = torch.tensor([1] + [0] * 63, device="cuda", dtype=torch.int32)
    out = torch.full((sum(lens) + 100, 16, 128), float("nan"), device="cuda", dtype=BF16)
    lse = torch.full((16, sum(lens) + 100), float("nan"), device="cuda")
    with cuda_launches(fixup=1):
        fixup_zero_kv_rows(out, lse.t(), kv, cum)
    assert out[:16384].isnan().all() and out[-100:].isnan().all() and out[16384:-100].eq(0).all()
    assert lse[:, :16384].isnan().all() and lse[:, -100:].isnan().all() and lse[:, 16384:-100].eq(-INF).all()


def needs_free(gib: float) -> None:
    if torch.cuda.mem_get_info()[0] < gib * 2**30:
        pytest.skip(f"needs {gib} GiB of free GPU memory")


def test_fixup_past_2_to_the_31_elements() -> None:
    needs_free(10)
    tokens, heads, dim = 70_000, 128, 256  # 2.29e9 elements
    out = torch.ones(tokens, heads, dim, device="cuda", dtype=BF16)
    lse = torch.ones(heads, tokens, device="cuda")
    cum = torch.tensor([0, 5, 69_000, tokens - 1], device="cuda")
    with cuda_launches(fixup=1):
        fixup_zero_kv_rows(out, lse.t(), torch.tensor([0, 9, 0], device="cuda"), cum)
    assert out[:5].eq(0).all() and out[5:69_000].eq(1).all() and out[69_000:-1].eq(0).all() and out[-1].eq(1).all()
    assert lse[:, 69_000:-1].eq(-INF).all() and lse[:, -1].eq(1).all() and lse[:, 5:69_000].eq(1).all()


@pytest.mark.parametrize("pitch", [128, 129])  # 16 bytes at a time, and the scalar path: more than 2**31 units of work
def test_merge_past_2_to_the_31_elements(pitch: int) -> None:
    needs_free(24)
    tokens, heads, dim = 132_000, 128, 128  # 2.16e9 elements
    memory = torch.empty(tokens * heads * pitch, device="cuda", dtype=BF16)
    prefix = memory.as_strided((tokens, heads, dim), (heads * pitch, pitch, 1)).fill_(1)
    suffix = torch.full((tokens, heads, dim), 3.0, device="cuda", dtype=BF16)
    lse, out_lse = torch.zeros(heads, tokens, device="cuda"), torch.empty(heads, tokens, device="cuda")
    with cuda_launches(merge=1):
        merge_attn_states(suffix, prefix, lse, suffix, lse, out_lse, 131_000)
    assert suffix[:131_000].eq(2).all() and suffix[131_000:].eq(3).all()
    torch.testing.assert_close(out_lse[:, :131_000], torch.full_like(out_lse[:, :131_000], 0.6931472))
    assert out_lse[:, 131_000:].eq(0).all()
