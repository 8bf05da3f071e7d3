"""Corrections of sglang.lse-log-base: both parts of chunked-prefix attention, the new tokens and each chunk, alike.

Arguments are those of 0.5.1-0.5.23. `mha_return_lse` is set for both parts of that path and for nothing else: speculative steps
of decode context parallelism return an LSE, too, and merge it by other code.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared import lse_base


def unsettled_ragged(target: Any, instance: Any, q: Any, forward_batch: Any) -> Any:
    """The path of the kernel that this part's wrapper has chosen, or nothing."""
    if not forward_batch.mha_return_lse:
        return None
    prefix = forward_batch.attn_attend_prefix_cache
    planned = instance.chunk_ragged_wrappers[forward_batch.prefix_chunk_idx] if prefix else instance.ragged_wrapper
    path = "BatchPrefillWithRaggedKVCacheWrapper", getattr(planned, "_backend", "?"), q.dtype, _part(prefix)
    return None if path in target.left_alone else path


def unsettled_trtllm(target: Any, instance: Any, q: Any, forward_batch: Any) -> Any:
    """The path of the backend's kernel, those of its heirs included, or nothing."""
    if not forward_batch.mha_return_lse:
        return None
    path = type(instance).__name__, instance.data_type, q.dtype, _part(forward_batch.attn_attend_prefix_cache)
    return None if path in target.left_alone else path


def _part(prefix: bool) -> str:
    return "prefix" if prefix else "new tokens"


def to_natural(
    call: Call, instance: Any, q: Any, k: Any, layer: Any, forward_batch: Any, q_rope: Any = None, k_rope: Any = None
) -> Any:
    """out [tokens, heads, v_head_dim], lse [tokens, heads] float32; out alone where there is nothing to merge."""
    result = call()
    if type(result) is not tuple:
        return result
    path, lse, prefix = call.found, result[1], forward_batch.attn_attend_prefix_cache

    def row() -> tuple[float, float]:
        if q_rope is not None or k_rope is not None:
            return lse_base.NOTHING
        heads = layer.tp_q_head_num, layer.tp_k_head_num
        query, keys = (x.reshape(-1, n, layer.head_dim) for x, n in zip((q, k), heads))
        q_at = [0, *forward_batch.extend_seq_lens.cumsum(0).tolist()]
        kv_at = forward_batch.prefix_chunk_cu_seq_lens[forward_batch.prefix_chunk_idx].tolist() if prefix else q_at
        return lse_base.one_row(query, keys, lse, q_at, kv_at, layer.scaling)

    lse_base.to_natural(call.target, path, lse, row, (*path[:-1], _part(not prefix)))
    return result
