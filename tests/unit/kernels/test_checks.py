"""Every check of the kernel ops raises before anything is written, and what engines pass is accepted."""

from __future__ import annotations

import pytest
import torch

from attnfix.kernels import driver, fixup_zero_kv_rows, merge_attn_states

T, H, D = 6, 2, 16
BF16, F32, FP8 = torch.bfloat16, torch.float32, torch.float8_e4m3fn
ELSEWHERE = "meta"


def values(*shape: int, dtype: torch.dtype = BF16, device: str = "cpu") -> torch.Tensor:
    return torch.ones(shape or (T, H, D), dtype=torch.float32, device=device).to(dtype)


def ints(*numbers: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype)


def fixup(**changed) -> None:
    arguments = dict(out=values(), lse=torch.ones(T, H), kv_lens=ints(0, 3), cum_seq_lens=ints(0, 2, 6)) | changed
    fixup_zero_kv_rows(**arguments)


def merge(**changed) -> None:
    arguments = dict(
        output=values(),
        prefix_output=values(),
        prefix_lse=torch.ones(H, T),
        suffix_output=values(),
        suffix_lse=torch.ones(H, T),
        output_lse=torch.ones(H, T),
    )
    merge_attn_states(**arguments | changed)


SHARED = torch.ones(2 * T * H * D).bfloat16()

FIXUP_ERRORS = [
    (dict(out=None), TypeError, "out must be a tensor"),
    (dict(kv_lens=ints(0, 3).to_sparse()), TypeError, "kv_lens must be a dense tensor"),
    (dict(out=values(T, D)), ValueError, "out must have the shape"),
    (dict(out=values(T, 257, D)), ValueError, "out must have 1 to 256 heads"),
    (dict(out=values(T, 0, D)), ValueError, "out must have 1 to 256 heads"),
    (dict(out=values(T, H, 12)), ValueError, "out must have a head size"),
    (dict(out=values(T, H, 584)), ValueError, "out must have a head size"),
    (dict(out=values(T, H, 0)), ValueError, "out must have a head size"),
    (dict(out=values(dtype=torch.float64)), TypeError, "out must be bfloat16, float16 or float32"),
    (dict(out=values(dtype=FP8)), TypeError, "out must be bfloat16"),
    (dict(out=values(1, H, D).expand(T, H, D)), ValueError, "out must not overlap itself"),
    (dict(lse=torch.ones(H, T)), ValueError, "lse must have the shape"),
    (dict(lse=values(T, H)), TypeError, "lse must be torch.float32"),
    (dict(lse=torch.ones(T, H, device=ELSEWHERE)), ValueError, "lse must be on cpu"),
    (dict(lse=torch.ones(T, 1).expand(T, H)), ValueError, "lse must not overlap itself"),
    (dict(kv_lens=None), ValueError, "kv_lens or cum_kv_lens must be given"),
    (dict(cum_kv_lens=ints(0, 0, 3)), ValueError, "kv_lens or cum_kv_lens must be given"),
    (dict(kv_lens=[0, 3]), TypeError, "kv_lens must be a tensor"),
    (dict(kv_lens=ints(0, 3).reshape(2, 1)), ValueError, "kv_lens must have one dimension"),
    (dict(kv_lens=torch.ones(2)), TypeError, "kv_lens must be int32 or int64"),
    (dict(kv_lens=torch.ones(2, dtype=torch.int32, device=ELSEWHERE)), ValueError, "kv_lens must be on cpu"),
    (dict(cum_seq_lens=ints(0, 6)), ValueError, "cum_seq_lens must have one element more"),
    (dict(cum_seq_lens=ints(0, 2, 6).float()), TypeError, "cum_seq_lens must be int32 or int64"),
    (dict(kv_lens=None, cum_kv_lens=ints()), ValueError, "cum_kv_lens must have at least one"),
    (dict(kv_lens=None, cum_kv_lens=ints(0, 3)), ValueError, "cum_seq_lens must have one element more"),
]

MERGE_ERRORS = [
    (dict(output=3), TypeError, "output must be a tensor"),
    (dict(output=values(T, H, 24)), ValueError, "prefix_output must have the shape"),
    (dict(output=values(T, H, 20)), ValueError, "output must have a head size"),
    (dict(output=values(dtype=F32)), TypeError, "output must be torch.bfloat16 like the inputs"),
    (dict(output=values(dtype=FP8)), TypeError, "output must be torch.bfloat16 like the inputs"),
    (dict(output=values(1, H, D).expand(T, H, D)), ValueError, "output must not overlap itself"),
    (dict(prefix_output=None), TypeError, "prefix_output must be"),
    (dict(prefix_output=values(dtype=torch.float64)), TypeError, "prefix_output must be bfloat16"),
    (dict(prefix_output=values(T + 1, H, D)), ValueError, "prefix_output must have the shape"),
    (dict(suffix_output=values(dtype=F32)), TypeError, "suffix_output must be torch.bfloat16"),
    (dict(suffix_output=values(T, 1, D)), ValueError, "suffix_output must have the shape"),
    (dict(suffix_output=values(device=ELSEWHERE)), ValueError, "suffix_output must be on cpu"),
    (dict(prefix_lse=torch.ones(T, H)), ValueError, "prefix_lse must have the shape"),
    (dict(suffix_lse=torch.ones(H, T).half()), TypeError, "suffix_lse must be torch.float32"),
    (dict(output_lse=torch.ones(H, T + 1)), ValueError, "output_lse must have the shape"),
    (dict(output_lse=torch.ones(1, T).expand(H, T)), ValueError, "output_lse must not overlap itself"),
    (dict(prefill_tokens_with_context=-1), ValueError, "prefill_tokens_with_context must be between"),
    (dict(prefill_tokens_with_context=T + 1), ValueError, "prefill_tokens_with_context must be between"),
    (dict(prefill_tokens_with_context=True), TypeError, "prefill_tokens_with_context must be an int"),
    (dict(prefill_tokens_with_context=2.0), TypeError, "prefill_tokens_with_context must be an int"),
    (dict(prefill_tokens_with_context=torch.tensor(2)), TypeError, "prefill_tokens_with_context must be an int"),
    (dict(output_scale=torch.ones(1)), TypeError, "output must be torch.float8_e4m3fn when output_scale"),
    (dict(output=values(dtype=FP8), output_scale=0.5), TypeError, "output_scale must be a float32 tensor"),
    (dict(output=values(dtype=FP8), output_scale=torch.ones(2)), ValueError, "output_scale must have one element"),
    (dict(output=values(dtype=FP8), output_scale=torch.ones(1, device=ELSEWHERE)), ValueError, "output_scale must be on"),
    (dict(kv_lens=ints(0)), ValueError, "kv_lens and cum_seq_lens must be given together"),
    (dict(cum_seq_lens=ints(0, 6)), ValueError, "kv_lens and cum_seq_lens must be given together"),
    (dict(kv_lens=ints(0), cum_seq_lens=ints(0)), ValueError, "cum_seq_lens must have one element more"),
    (dict(lse_base=10), ValueError, "lse_base must be 'e' or 2"),
    (
        dict(output=SHARED[8 : 8 + T * H * D].view(T, H, D), prefix_output=SHARED[: T * H * D].view(T, H, D)),
        ValueError,
        "output must be exactly prefix_output",
    ),
    (
        dict(output=SHARED[: T * H * D].view(T, H, D), suffix_output=SHARED[: T * H * D].view(H, T, D).transpose(0, 1)),
        ValueError,
        "output must be exactly suffix_output",
    ),
]


@pytest.mark.parametrize(("changed", "error", "sentence"), FIXUP_ERRORS)
def test_fixup_refuses(changed: dict, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        fixup(**changed)


@pytest.mark.parametrize(("changed", "error", "sentence"), MERGE_ERRORS)
def test_merge_refuses(changed: dict, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        merge(**changed)


def test_output_lse_must_not_be_an_input() -> None:
    lse = torch.ones(H, T)
    with pytest.raises(ValueError, match="output_lse must not overlap suffix_lse"):
        merge(suffix_lse=lse, output_lse=lse)
    with pytest.raises(ValueError, match="output must not overlap prefix_lse"):
        memory = torch.ones(T, H, D)
        same = dict(prefix_output=values(dtype=F32), suffix_output=values(dtype=F32))
        merge(output=memory, prefix_lse=memory.view(-1)[: H * T].view(H, T), **same)
    with pytest.raises(ValueError, match="out must not overlap lse"):
        fixup(out=memory, lse=memory[:, :, 0])


def test_nothing_is_written_when_refused() -> None:
    output = values()
    with pytest.raises(ValueError):
        merge(output=output, lse_base=3)
    assert output.eq(1).all()


def test_views_that_interleave_are_not_an_overlap() -> None:
    """Halves of every row, or head groups of every token, share an address range and no element."""
    rows = torch.ones(T, H, 2 * D).bfloat16()
    merge(output=rows[..., :D], prefix_output=rows[..., D:])
    heads = torch.ones(T, 2 * H, D).bfloat16()
    merge(output=heads[:, :H], suffix_output=heads[:, H:])
    with pytest.raises(ValueError, match="output must be exactly"):
        merge(output=rows[..., :D], prefix_output=rows[..., 8 : D + 8])


def test_strides_of_single_rows_do_not_matter() -> None:
    one = torch.ones(1, 1, D).bfloat16()
    lse = torch.ones(1, 1)
    merge_attn_states(one, one.as_strided((1, 1, D), (999, 77, 1)), lse, one.clone(), lse)


def test_nothing_to_do_returns_at_once() -> None:
    fixup(out=values(0, H, D), lse=torch.ones(0, H))
    fixup(kv_lens=ints(), cum_seq_lens=ints(0))
    fixup(kv_lens=None, cum_kv_lens=ints(0), cum_seq_lens=ints(0))
    merge(**{n: values(0, H, D) for n in ("output", "prefix_output", "suffix_output")},
          **{n: torch.ones(H, 0) for n in ("prefix_lse", "suffix_lse", "output_lse")})  # fmt: skip
    merge(kv_lens=ints(), cum_seq_lens=ints(0))


@pytest.mark.parametrize(
    ("capability", "target"),
    [((8, 0), "sm_80"), ((8, 9), "sm_80"), ((9, 0), "sm_90"), ((10, 0), "sm_100"), ((10, 3), "sm_100"),
     ((12, 1), "sm_120"), ((11, 0), "compute_80"), ((13, 0), "compute_80")],
)  # fmt: skip
def test_image_for_a_compute_capability(capability: tuple[int, int], target: str) -> None:
    arches = ["sm_80", "sm_90", "sm_100", "sm_120"]
    assert driver.choose_target(*capability, arches, "compute_80") == target


def test_no_image_for_an_old_device() -> None:
    with pytest.raises(driver.KernelUnavailable, match=r"7\.5"):
        driver.choose_target(7, 5, ["sm_80", "sm_90"], "compute_80")


def test_no_cuda_no_driver_call() -> None:
    if torch.cuda.is_initialized():
        pytest.skip("CUDA is in use")
    with pytest.raises(driver.KernelUnavailable, match="not initialised CUDA"):
        driver.device(0)
    assert driver._cuda is None
