"""The op `merge_attn_states`: it checks the arguments, then launches a kernel, or the torch reference where none can run.

It writes into the tensors it is given and returns None, like the engine's op of the same name. It is not differentiable. Code
traced by torch.compile calls `torch.ops.attnfix.*` instead (see `torch_ops`).
"""

from __future__ import annotations

import os
from typing import Any

import torch

from . import checks, launch_cache, reference, usage
from .driver import Launch
from .parameters import (
    PackParams,
    ScalarParams,
    aligned,
    fast_div,
    fits_32_bits,
    in_packs,
    loaded_on,
    pointer,
    token_head,
    words,
)

_THREADS = 256  # per block
_MAX_GRID = 0x7FFFFFFF
_BASE2 = 1
#: Types of arguments that a kept launch may be looked up by; others take the long way, and are judged there
_COUNTS, _BASES = (int, type(None)), (str, int)
_NAMES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}

_launches = launch_cache.Cache()
os.register_at_fork(after_in_child=_launches.forget)


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
    if plain and (known := _launches.find(tensors, options)) is not None:
        addresses = (
            *(output.data_ptr(), prefix_output.data_ptr(), suffix_output.data_ptr(), pointer(output_lse)),
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
    _check_memory(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse, output_scale, kv_lens, cum_seq_lens)
    if not tokens:
        return

    on = loaded_on(device, "merge_attn_states")
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
        aligned(output, strides[0], output.element_size(), pack * output.element_size())
        and aligned(prefix_output, strides[1], size, 16)
        and aligned(suffix_output, strides[2], size, 16)
        and all(fits_32_bits(t, pack) for t in (output, prefix_output, suffix_output))
        and all(fits_32_bits(t, 1) for t in (output_lse, prefix_lse, suffix_lse) if t is not None)
        and all(words(t) * t.numel() < 1 << 31 for t in (kv_lens, cum_seq_lens) if t is not None)
    )
    if not vector:
        pack = 1
    head_packs = head_size // pack
    packs = tokens * heads * head_packs
    path, looked_up = "", (0, 0, 0, 0)
    if requests and kv_lens is not None and cum_seq_lens is not None:
        path, looked_up = "_kv", (kv_lens.data_ptr(), cum_seq_lens.data_ptr(), words(kv_lens), words(cum_seq_lens))
    if not vector:
        path = "_scalar"
    addresses = (
        *(output.data_ptr(), prefix_output.data_ptr(), suffix_output.data_ptr(), pointer(output_lse)),
        *(prefix_lse.data_ptr(), suffix_lse.data_ptr()),
    )
    params = (PackParams if vector else ScalarParams)(
        *addresses,
        *(in_packs(s, pack) for s in strides),
        *map(token_head, (output_lse, prefix_lse, suffix_lse)),
        *(packs, context_tokens, 0),
        fast_div(heads * head_packs),
        fast_div(head_packs),
        *(_BASE2 if base2 else 0, 0),
        pointer(output_scale),
        (*looked_up, requests, 0),
    )
    entry = f"merge_attn_states_{_NAMES[dtype]}{'_fp8' if fp8 else ''}{path}"
    launch = Launch(on, entry, min(-(-packs // _THREADS), _MAX_GRID), _THREADS, params, len(addresses))
    launch(addresses)
    if plain and vector:
        _launches.add(launch, tensors, options, addresses)
    usage.count_cuda("merge_attn_states")


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


def _check_memory(
    output: torch.Tensor, prefix_output: torch.Tensor, prefix_lse: torch.Tensor, suffix_output: torch.Tensor,
    suffix_lse: torch.Tensor, output_lse: torch.Tensor | None, *small: torch.Tensor | None,
) -> None:  # fmt: skip
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
