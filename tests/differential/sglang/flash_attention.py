"""FlashAttention 3 at sgl_kernel's entry points, as its launcher and kernel read their arguments.

Source: `flash_api.cpp` and `paged_kv.h` of FlashAttention 3: the table of pages is read by its row's stride, and nobody asks
whether a length fits into it; rows of a request at or beyond `max_seqlen_q` have no thread block and stay undefined; an
output of FP8 inputs is bfloat16; the LSE is natural, float32 [heads, rows], and holds the sink, but for requests without any
key: these have -inf (`finalize` of sgl-kernel's `softmax.h`, and `store_zero`).
"""

from __future__ import annotations

import math
from typing import Any

import torch


def flash_attn_with_kvcache(
    q: Any, k_cache: Any, v_cache: Any, k: Any = None, v: Any = None, qv: Any = None, *, cache_seqlens: Any, page_table: Any,
    cu_seqlens_q: Any = None, max_seqlen_q: Any = None, q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
    softmax_scale: Any = None, causal: bool = False, window_size: Any = (-1, -1), softcap: float = 0.0,
    return_softmax_lse: bool = False, sinks: Any = None, out: Any = None, **launch: Any,
) -> Any:  # fmt: skip
    """q: [rows, heads, d] with `cu_seqlens_q`, else [requests, rows, heads, d]; caches: [pages, page size, KV heads, d]."""
    if k is not None or v is not None or out is not None:
        raise NotImplementedError("new keys, or an output of the caller's")
    shape, page = q.shape, k_cache.shape[1]
    if cu_seqlens_q is None:
        begins = [shape[1] * b for b in range(shape[0] + 1)]
        q, qv = q.flatten(0, 1), None if qv is None else qv.flatten(0, 1)
        max_seqlen_q = shape[1]
    else:
        begins = cu_seqlens_q.tolist()
    lengths = cache_seqlens.tolist()
    pages = _memory(page_table)

    def keys(b: int) -> tuple[Any, Any]:
        first = page_table.storage_offset() + b * page_table.stride(0)
        wanted = pages[first : first + -(-lengths[b] // page)]
        if len(wanted) * page < lengths[b]:
            raise IndexError("illegal memory access: the table of pages ends before the request does")
        return tuple(cache[wanted.long()].flatten(0, 1)[: lengths[b]] for cache in (k_cache, v_cache))  # type: ignore[return-value]

    return _attend(
        q, keys, begins, max_seqlen_q, (q_descale, k_descale, v_descale), softmax_scale, causal, window_size, softcap, sinks,
        qv, return_softmax_lse, shape,
    )  # fmt: skip


def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: Any = None, max_seqlen_k: Any = None, *,
    seqused_k: Any = None, qv: Any = None, q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
    softmax_scale: Any = None, causal: bool = False, window_size: Any = (-1, -1), softcap: float = 0.0,
    return_softmax_lse: bool = False, sinks: Any = None, out: Any = None, **launch: Any,
) -> Any:  # fmt: skip
    """k, v: [tokens, KV heads, d]."""
    if out is not None or launch.get("page_table") is not None or launch.get("seqused_q") is not None:
        raise NotImplementedError("an output of the caller's, pages, or fewer rows")
    ends, used = cu_seqlens_k.tolist(), None if seqused_k is None else seqused_k.tolist()

    def keys(b: int) -> tuple[Any, Any]:
        end = ends[b + 1] if used is None else ends[b] + used[b]
        return k[ends[b] : end], v[ends[b] : end]

    return _attend(
        q, keys, cu_seqlens_q.tolist(), max_seqlen_q, (q_descale, k_descale, v_descale), softmax_scale, causal, window_size,
        softcap, sinks, qv, return_softmax_lse, q.shape,
    )  # fmt: skip


def get_scheduler_metadata(**given: Any) -> Any:
    """What it computes is how the work is shared out: no result depends on it. Its length is not the kernel's."""
    return torch.zeros(2, dtype=torch.int32)


def _attend(
    q: Any, keys: Any, begins: list[int], max_rows: Any, descales: tuple, scale: Any, causal: bool, window: Any, cap: float,
    sinks: Any, qv: Any, return_lse: bool, shape: Any,
) -> Any:  # fmt: skip
    heads, result, lse = q.shape[1], None, torch.full((q.shape[1], q.shape[0]), math.nan)
    scale = scale or q.shape[-1] ** -0.5
    left, right = (None if side < 0 else side for side in window)
    right = 0 if causal else right
    most = int(max_rows) if max_rows is not None else len(q)
    for b in range(len(begins) - 1):
        rows = range(begins[b], min(begins[b + 1], begins[b] + most))
        k, v = keys(b)
        if result is None:
            dtype = q.dtype if q.dtype.itemsize > 1 else torch.bfloat16
            result = torch.full((len(q), heads, v.shape[-1]), math.nan, dtype=dtype)
        if not len(rows):
            continue
        one = q[rows.start : rows.stop].double()
        group = heads // k.shape[1]
        k, v = k.double(), v.double()
        for at, descale in enumerate(descales):
            if descale is not None:
                by = descale[b].double()
                one, k, v = (
                    one * by.repeat_interleave(group)[:, None] if at == 0 else one,
                    k * by[:, None] if at == 1 else k,
                    v * by[:, None] if at == 2 else v,
                )
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->qhk", one, k)
        if qv is not None:
            scores = scores + torch.einsum("qhd,khd->qhk", qv[rows.start : rows.stop].double(), v)
        scores = scores * scale
        if cap:
            scores = (scores / cap).tanh() * cap
        key = torch.arange(len(k))[None]
        own = torch.arange(len(rows))[:, None] + len(k) - (begins[b + 1] - begins[b])
        seen = torch.ones(len(rows), len(k), dtype=torch.bool)
        if right is not None:
            seen &= key <= own + right
        if left is not None:
            seen &= key >= own - left
        scores = scores.masked_fill(~seen[:, None], -math.inf)
        total = scores.logsumexp(-1) if len(k) else scores.new_full(scores.shape[:2], -math.inf)
        if sinks is not None and len(k):
            total = torch.logaddexp(total, sinks.double())
        weights = (scores - total[..., None]).exp().nan_to_num(0.0)
        result[rows.start : rows.stop] = torch.einsum("qhk,khd->qhd", weights, v).to(result.dtype)
        lse[:, rows.start : rows.stop] = total.t().float()
    result = result.reshape(*shape[:-1], result.shape[-1])
    if len(shape) == 4:
        lse = lse.view(heads, *shape[:2]).transpose(0, 1)
    return (result, lse) if return_lse else result


def _memory(tensor: Any) -> Any:
    """Everything that the tensor's allocation holds."""
    return torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
