"""The op `fixup_zero_kv_rows`: it checks the arguments, then launches a kernel, or the torch reference where none can run.

It writes into the tensors it is given and returns None, like the engine's op of the same name. It is not differentiable. Code
traced by torch.compile calls `torch.ops.attnfix.*` instead (see `torch_ops`).
"""

from __future__ import annotations

import os

import torch

from . import checks, launch_cache, reference, usage
from .driver import Launch
from .parameters import FixupParams, aligned, fast_div, fits_32_bits, in_packs, loaded_on, words

_THREADS = 128  # per block
_BLOCKS_PER_SM = 12  # all at once, on any GPU
_UNIT, _LEAST_UNIT = 11, 8  # log2 of the packs that a block takes at a time, 32 KiB down to 4
# Where zeros are bulk stores, which keep a multiprocessor busy by themselves: from this compute capability on.
_BULK, _BULK_BLOCKS_PER_SM, _BULK_UNIT = 90, 1, 11

_launches = launch_cache.Cache()
os.register_at_fork(after_in_child=_launches.forget)


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
    if (known := _launches.find(tensors, (cumulative,))) is not None:
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

    on = loaded_on(device, "fixup_zero_kv_rows")
    if on is None:
        reference.fixup_zero_kv_rows(out, lse, lens, cum_seq_lens, cumulative)
        return
    out_strides = out.stride()
    size = out.element_size()
    pack = 16 // size if aligned(out, out_strides, size, 16) and fits_32_bits(out, 16 // size) else 1
    head_packs = head_size // pack
    row_packs = heads * head_packs
    addresses = out.data_ptr(), lse.data_ptr(), lens.data_ptr(), cum_seq_lens.data_ptr()
    dense = pack > 1 and out.is_contiguous()
    blocks, units = _BLOCKS_PER_SM, (_UNIT, _LEAST_UNIT)
    if dense and on.built_for >= _BULK:
        blocks, units = _BULK_BLOCKS_PER_SM, (_BULK_UNIT, _BULK_UNIT)
    params = FixupParams(
        *addresses[:2],
        (*addresses[2:], words(lens), words(cum_seq_lens), requests, cumulative),
        tokens,
        in_packs(out_strides, pack),
        lse.stride(),
        fast_div(row_packs),
        fast_div(head_packs),
        *units,
    )
    entry = ("dense" if dense else "packs") if pack > 1 else f"b{8 * size}_scalar"
    # The empty rows are not known here; all tokens are the upper bound of the useful blocks.
    grid = min(on.sm_count * blocks, -(-tokens * row_packs >> units[1]))
    launch = Launch(on, f"fixup_zero_kv_rows_{entry}", grid, _THREADS, params, len(addresses))
    launch(addresses)
    if pack > 1:
        _launches.add(launch, tensors, (cumulative,), addresses)
    usage.count_cuda("fixup_zero_kv_rows")
