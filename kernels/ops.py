"""The public ops: check the arguments, then launch a compiled kernel, or the torch reference where none can run.

They write into the tensors they are given and return None, like the engines' ops of the same names. They are not
differentiable. Code traced by torch.compile calls `torch.ops.attnfix.*` instead (see `library`).
"""

from __future__ import annotations

import functools
import itertools
import os
import struct
from typing import Any

import torch

from . import checks, driver, prepared, reference, usage

_THREADS = 256  # per block, in both kernels
_MAX_GRID = 0x7FFFFFFF
_FIXUP_BLOCKS_PER_SM = 4
_FIXUP_UNIT = 8 * _THREADS  # packs that a block takes at a time: 32 KiB

# The kernels' parameter structs. The merge has one with 32-bit positions in packs and one with 64-bit ones in elements.
FIXUP_LAYOUT = struct.Struct("<2Q 2Q 2q 2I q 3q 2q 3I 3I 2I")
MERGE_LAYOUT, MERGE_SCALAR_LAYOUT = (struct.Struct(f"<6Q 9{s} 6{s} 3{s} 3I 3I 2I Q 2Q 2{s} 2I") for s in "Iq")
_BASE2 = 1
#: Types of arguments that a kept launch may be looked up by; others take the long way, and are judged there
_COUNTS, _BASES = (int, type(None)), (str, int)

_fixups, _merges = prepared.Cache(), prepared.Cache()
for _cache in (_fixups, _merges):
    os.register_at_fork(after_in_child=_cache.forget)
_MERGE_NAMES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}


def fixup_zero_kv_rows(
    out: torch.Tensor,
    lse: torch.Tensor,
    kv_lens: torch.Tensor | None,
    cum_seq_lens: torch.Tensor,
    *,
    cum_kv_lens: torch.Tensor | None = None,
) -> None:
    """Give the rows of requests without KV the result of attention over nothing: out 0, LSE -inf. In place.

    For every request b with no KV, rows `cum_seq_lens[b]` up to `cum_seq_lens[b + 1]` are written. All other rows,
    and padding rows at or past `cum_seq_lens[-1]`, are neither written nor, on CUDA, read. One launch, no host sync;
    its cost grows with the empty rows alone.

    Args:
        out: [tokens, heads, head_size], bfloat16, float16 or float32, any strides (rows that are not 16-byte aligned
            take a slower path). 1 to 256 heads; the head size is a multiple of 8 up to 576.
        lse: [tokens, heads], float32, any strides. Pass `lse.t()` for vLLM's [heads, tokens].
        kv_lens: [requests], int32 or int64: KV tokens of each request; 0 or less is none.
        cum_seq_lens: [requests + 1], int32 or int64: offsets of each request's query rows.
        cum_kv_lens: [requests + 1], int32 or int64: KV offsets, instead of `kv_lens`; equal neighbours mean no KV.
            Lengths and offsets are below 2**31.

    Raises:
        TypeError, ValueError: an argument is unfit; nothing was launched.
        CudaError: the driver refused the launch.

    Upstream: sgl-project/sglang PR 22688 (`fixup_zero_kv_rows`), vllm-project/vllm `mask_empty_context`.
    """
    cumulative = kv_lens is None
    lens = cum_kv_lens if kv_lens is None else kv_lens
    if lens is None or cumulative == (cum_kv_lens is None):
        raise ValueError("kv_lens or cum_kv_lens must be given, and not both")
    tensors = out, lse, lens, cum_seq_lens
    if (known := _fixups.find(tensors, (cumulative,))) is not None:
        addresses = out.data_ptr(), lse.data_ptr(), lens.data_ptr(), cum_seq_lens.data_ptr()
        if addresses in known.addresses:
            known.launch(addresses)
            usage.count_cuda("fixup_zero_kv_rows")
            return
    tokens, heads, head_size = checks.values("out", out)
    checks.value_dtype("out", out.dtype)
    device = out.device
    checks.same("lse", lse, (tokens, heads), torch.float32, device)
    lens_name = "cum_kv_lens" if cumulative else "kv_lens"
    requests = checks.index(lens_name, lens, device)
    if cumulative:
        requests -= 1
        if requests < 0:
            raise ValueError("cum_kv_lens must have at least one element")
    checks.offsets("cum_seq_lens", cum_seq_lens, requests, device)
    checks.writable("out", out)
    checks.writable("lse", lse)
    memory_of_out, memory_of_lse = checks.memory("out", out), checks.memory("lse", lse)
    read = (checks.memory(lens_name, lens), checks.memory("cum_seq_lens", cum_seq_lens))
    checks.apart(memory_of_out, (memory_of_lse, *read))
    checks.apart(memory_of_lse, read)
    if not tokens or not requests:
        return

    on = _cuda_device("fixup_zero_kv_rows", device)
    if on is None:
        reference.fixup_zero_kv_rows(out, lse, lens, cum_seq_lens, cumulative)
        return
    out_strides = out.stride()
    size = out.element_size()
    pack = 16 // size if _aligned(out, out_strides, size, 16) and _fits_32_bits(out, 16 // size) else 1
    head_packs = head_size // pack
    row_packs = heads * head_packs
    addresses = out.data_ptr(), lse.data_ptr(), lens.data_ptr(), cum_seq_lens.data_ptr()
    launch = driver.Launch(
        on,
        "fixup_zero_kv_rows_packs" if pack > 1 else f"fixup_zero_kv_rows_b{8 * size}_scalar",
        # The empty rows are not known here; all tokens are the upper bound of the useful blocks.
        min(on.sm_count * _FIXUP_BLOCKS_PER_SM, -(-tokens * row_packs // _FIXUP_UNIT)),
        _THREADS,
        FIXUP_LAYOUT,
        len(addresses),
        *addresses,
        *(_words(lens), _words(cum_seq_lens), requests, cumulative, tokens),
        *_in_packs(out_strides, pack),
        *lse.stride(),
        *fast_div(row_packs),
        *fast_div(head_packs),
        *(_FIXUP_UNIT, 0),
    )
    launch(addresses)
    if pack > 1:
        _fixups.add(launch, tensors, (cumulative,), addresses)
    usage.count_cuda("fixup_zero_kv_rows")


def merge_attn_states(
    output: torch.Tensor,
    prefix_output: torch.Tensor,
    prefix_lse: torch.Tensor,
    suffix_output: torch.Tensor,
    suffix_lse: torch.Tensor,
    output_lse: torch.Tensor | None = None,
    prefill_tokens_with_context: int | None = None,
    output_scale: torch.Tensor | None = None,
    *,
    kv_lens: torch.Tensor | None = None,
    cum_seq_lens: torch.Tensor | None = None,
    lse_base: str | int = "e",
) -> None:
    """Merge attention over two disjoint parts of the KV by their log-sum-exp. Writes `output` and `output_lse`.

    Per (token, head), an LSE of -inf or +inf marks an empty side (FlashAttention 2 writes +inf):
    - neither empty: the softmax-weighted sum, and the LSE over both parts;
    - one empty: the other side's row and LSE, bit for bit (NaN in the empty side's row does not leak);
    - both empty: 0 and -inf, never NaN.
    An LSE of NaN is no empty side; it makes the row NaN.

    Args:
        output: [tokens, heads, head_size], any strides, of the inputs' dtype, or float8_e4m3fn with `output_scale`.
            May be exactly `prefix_output` or `suffix_output`; any other overlap is refused.
        prefix_output, suffix_output: [tokens, heads, head_size], bfloat16, float16 or float32, any strides. 1 to 256
            heads; the head size is a multiple of 8 up to 576. 16-byte aligned rows take a faster path.
        prefix_lse, suffix_lse: [heads, tokens], float32, any strides.
        output_lse: [heads, tokens], float32, any strides, or None. Always a natural logarithm, whatever `lse_base`.
            Overlaps none of the inputs.
        prefill_tokens_with_context: tokens from here on have no context: they copy the suffix and its LSE bit for bit,
            infinities included, and their prefix is not read. None: all tokens have context.
        output_scale: one float32 on the same device: the static quantisation scale of an FP8 output, value * (1 /
            scale) saturated to ±448.
        kv_lens, cum_seq_lens: [requests] and [requests + 1], int32 or int64, given together: tokens of requests with
            no KV (0 or less) have an empty prefix, which is not read. Tokens outside the offsets merge as usual.
            Lengths and offsets are below 2**31.
        lse_base: "e" or 2: the base of both input LSEs. In base 2 a copied LSE is converted, not copied bit for bit.

    Raises:
        TypeError, ValueError: an argument is unfit; nothing was launched.
        CudaError: the driver refused the launch.

    Upstream: vllm-project/vllm `csrc/attention/merge_attn_states.cu` (PR 36540, FP8 output PR 36518), whose arguments
    come first and in its order; arXiv 2501.01005, section 2.2.
    """
    tensors: tuple[torch.Tensor, ...] = (output, prefix_output, suffix_output, prefix_lse, suffix_lse)
    if output_lse is not None:
        tensors = (*tensors, output_lse)
    options = prefill_tokens_with_context, lse_base
    plain = output_scale is kv_lens is cum_seq_lens is None
    plain = plain and type(prefill_tokens_with_context) in _COUNTS and type(lse_base) in _BASES
    if plain and (known := _merges.find(tensors, options)) is not None:
        addresses = (
            *(output.data_ptr(), prefix_output.data_ptr(), suffix_output.data_ptr(), _pointer(output_lse)),
            *(prefix_lse.data_ptr(), suffix_lse.data_ptr()),
        )
        if addresses in known.addresses:
            known.launch(addresses)
            usage.count_cuda("merge_attn_states")
            return
    shape = tokens, heads, head_size = checks.values("output", output)
    device = output.device
    dtype: Any = getattr(prefix_output, "dtype", None)  # whatever was passed: the next line judges it
    checks.value_dtype("prefix_output", dtype)
    checks.same("prefix_output", prefix_output, shape, dtype, device)
    checks.same("suffix_output", suffix_output, shape, dtype, device)
    lse_shape = (heads, tokens)
    checks.same("prefix_lse", prefix_lse, lse_shape, torch.float32, device)
    checks.same("suffix_lse", suffix_lse, lse_shape, torch.float32, device)
    if output_lse is not None:
        checks.same("output_lse", output_lse, lse_shape, torch.float32, device)
    fp8 = _check_output_dtype(output, dtype, output_scale)
    context_tokens = _context_tokens(prefill_tokens_with_context, tokens)
    base2 = _is_base2(lse_base)
    if (kv_lens is None) != (cum_seq_lens is None):
        raise ValueError("kv_lens and cum_seq_lens must be given together")
    requests = 0
    if kv_lens is not None and cum_seq_lens is not None:
        requests = checks.index("kv_lens", kv_lens, device)
        checks.offsets("cum_seq_lens", cum_seq_lens, requests, device)
    _check_merge_memory(
        output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse, output_scale, kv_lens, cum_seq_lens
    )
    if not tokens:
        return

    on = _cuda_device("merge_attn_states", device)
    if on is None:
        reference.merge_attn_states(
            *(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse),
            *(context_tokens, output_scale, kv_lens, cum_seq_lens, base2),
        )
        return
    size = prefix_output.element_size()
    pack = 16 // size
    strides = output.stride(), prefix_output.stride(), suffix_output.stride()
    vector = (
        _aligned(output, strides[0], output.element_size(), pack * output.element_size())
        and _aligned(prefix_output, strides[1], size, 16)
        and _aligned(suffix_output, strides[2], size, 16)
        and all(_fits_32_bits(t, pack) for t in (output, prefix_output, suffix_output))
        and all(_fits_32_bits(t, 1) for t in (output_lse, prefix_lse, suffix_lse) if t is not None)
    )
    if not vector:
        pack = 1
    head_packs = head_size // pack
    packs = tokens * heads * head_packs
    path, looked_up = "", (0, 0, 0, 0)
    if requests and kv_lens is not None and cum_seq_lens is not None:
        path, looked_up = "_kv", (kv_lens.data_ptr(), cum_seq_lens.data_ptr(), _words(kv_lens), _words(cum_seq_lens))
    if not vector:
        path = "_scalar"
    addresses = (
        *(output.data_ptr(), prefix_output.data_ptr(), suffix_output.data_ptr(), _pointer(output_lse)),
        *(prefix_lse.data_ptr(), suffix_lse.data_ptr()),
    )
    launch = driver.Launch(
        on,
        f"merge_attn_states_{_MERGE_NAMES[dtype]}{'_fp8' if fp8 else ''}{path}",
        min(-(-packs // _THREADS), _MAX_GRID),
        _THREADS,
        MERGE_LAYOUT if vector else MERGE_SCALAR_LAYOUT,
        len(addresses),
        *addresses,
        *itertools.chain(*(_in_packs(s, pack) for s in strides)),
        *_token_head(output_lse),
        *_token_head(prefix_lse),
        *_token_head(suffix_lse),
        *(packs, context_tokens, 0),
        *fast_div(heads * head_packs),
        *fast_div(head_packs),
        *(_BASE2 if base2 else 0, 0, _pointer(output_scale)),
        *(*looked_up, requests, 0),
    )
    launch(addresses)
    if plain and vector:
        _merges.add(launch, tensors, options, addresses)
    usage.count_cuda("merge_attn_states")


def _cuda_device(op: str, device: torch.device) -> driver.Device | None:
    """The device's loaded kernels; None, counted with its reason, where the torch reference has to serve."""
    if device.type != "cuda":
        usage.count_reference(op, f"the tensors are on {device.type}")
        return None
    try:
        return driver.device(device.index)
    except driver.KernelUnavailable as error:
        usage.count_reference(op, str(error))
        return None


@functools.lru_cache(maxsize=1024)
def fast_div(divisor: int) -> tuple[int, int, int]:
    """(divisor, multiplier, shift) of common.cuh's FastDiv: exact for numbers below 2**31."""
    shift = (divisor - 1).bit_length()
    return divisor, -(-(1 << (32 + shift)) // divisor) - (1 << 32), shift


def _aligned(tensor: torch.Tensor, strides: tuple[int, ...], size: int, width: int) -> bool:
    """Whether every row starts at a multiple of `width` bytes and its elements lie side by side."""
    return strides[2] == 1 and not (tensor.data_ptr() | strides[0] * size | strides[1] * size) % width


def _in_packs(strides: tuple[int, ...], pack: int) -> tuple[int, int, int]:
    token, head, dim = strides
    return token // pack, head // pack, dim


def _fits_32_bits(tensor: torch.Tensor, pack: int) -> bool:
    """Whether positions in packs are below 2**31, as the vector path computes them; a grid of packs is then, too."""
    return checks.extent(tensor.shape, tensor.stride()) < pack << 31


def _words(index: torch.Tensor) -> int:
    """The stride of an index tensor in 32-bit words, of which the kernels read the low one."""
    return index.stride(0) * (2 if index.dtype == torch.int64 else 1)


def _pointer(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _token_head(lse: torch.Tensor | None) -> tuple[int, int]:
    """(token, head) strides of a [heads, tokens] LSE."""
    return (0, 0) if lse is None else (lse.stride(1), lse.stride(0))


def _check_output_dtype(output: torch.Tensor, dtype: torch.dtype, output_scale: torch.Tensor | None) -> bool:
    """Whether the output is FP8."""
    if output_scale is None:
        if output.dtype != dtype:
            raise TypeError(f"output must be {dtype} like the inputs, or {checks.FP8} with output_scale")
        return False
    if output.dtype != checks.FP8:
        raise TypeError(f"output must be {checks.FP8} when output_scale is given, not {output.dtype}")
    if not isinstance(output_scale, torch.Tensor) or output_scale.dtype != torch.float32:
        raise TypeError("output_scale must be a float32 tensor")
    if output_scale.numel() != 1:
        raise ValueError(f"output_scale must have one element, not {output_scale.numel()}")
    checks.on_device("output_scale", output_scale, output.device)
    return True


def _context_tokens(prefill_tokens_with_context: int | None, tokens: int) -> int:
    n = prefill_tokens_with_context
    if n is None:
        return tokens
    if isinstance(n, bool) or not hasattr(n, "__index__") or isinstance(n, torch.Tensor):
        raise TypeError(f"prefill_tokens_with_context must be an int or None, not {type(n).__name__}")
    n = n.__index__()
    if not 0 <= n <= tokens:
        raise ValueError(f"prefill_tokens_with_context must be between 0 and the {tokens} tokens, not {n}")
    return n


def _is_base2(lse_base: str | int) -> bool:
    if lse_base == "e":
        return False
    if lse_base in (2, "2"):
        return True
    raise ValueError(f"lse_base must be 'e' or 2, not {lse_base!r}")


def _check_merge_memory(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse, *small) -> None:
    """In place is fine for values: a thread reads what it writes. LSEs are read by many threads of a row: never."""
    checks.writable("output", output)
    written = checks.memory("output", output)
    values = (checks.memory("prefix_output", prefix_output), checks.memory("suffix_output", suffix_output))
    others = [checks.memory("prefix_lse", prefix_lse), checks.memory("suffix_lse", suffix_lse)]
    for name, tensor in zip(("output_scale", "kv_lens", "cum_seq_lens"), small):
        if tensor is not None:
            others.append(checks.memory(name, tensor))
    checks.apart_or_same(written, values)
    checks.apart(written, others)
    if output_lse is not None:
        checks.writable("output_lse", output_lse)
        lse = checks.memory("output_lse", output_lse)
        checks.apart(lse, others)
        checks.apart(lse, (written, *values))
