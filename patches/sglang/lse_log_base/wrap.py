"""Corrections of sglang.lse-log-base: both parts of chunked-prefix attention, the new tokens and each chunk, alike.

Arguments are those of 0.5.1-0.5.23. `mha_return_lse` is set for both parts of that path and for nothing else: speculative steps
of decode context parallelism return an LSE, too, and merge it by other code.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import NOT_NEEDED
from attnfix.patches import lse_base


def ragged_forward(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`FlashInferMhaChunkKVRunner.forward`: out [tokens, heads, v_head_dim], lse [tokens, heads] float32."""
    forward_batch = args[4]
    if not forward_batch.mha_return_lse:
        return NOT_NEEDED
    # Which of FlashInfer's kernels the part's wrapper has chosen
    prefix = forward_batch.attn_attend_prefix_cache
    planned = instance.chunk_ragged_wrappers[forward_batch.prefix_chunk_idx] if prefix else instance.ragged_wrapper
    part, q = "prefix" if prefix else "new tokens", args[0]
    path = "BatchPrefillWithRaggedKVCacheWrapper", getattr(planned, "_backend", "?"), q.dtype, part
    return NOT_NEEDED if path in wrapped.state.settled else _natural(wrapped, path, args, kwargs)


def trtllm_forward_extend(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`TRTLLMMLABackend.forward_extend`, its heirs with other kernels included."""
    forward_batch = args[4]
    if not forward_batch.mha_return_lse:
        return NOT_NEEDED
    part, q = "prefix" if forward_batch.attn_attend_prefix_cache else "new tokens", args[0]
    path = type(instance).__name__, instance.data_type, q.dtype, part
    return NOT_NEEDED if path in wrapped.state.settled else _natural(wrapped, path, args, kwargs)


def _natural(wrapped: Any, path: tuple, args: tuple, kwargs: dict) -> Any:
    result = wrapped(*args, **kwargs)
    if type(result) is tuple:
        _to_natural(wrapped, path, result[1], *args, **kwargs)
    return result


def _to_natural(
    wrapped: Any, path: tuple, lse: Any, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True,
    q_rope: Any = None, k_rope: Any = None, *more: Any, **others: Any,
) -> None:  # fmt: skip
    prefix = forward_batch.attn_attend_prefix_cache

    def row() -> tuple[float, float] | None:
        if q_rope is not None or k_rope is not None:
            return None
        heads = layer.tp_q_head_num, layer.tp_k_head_num
        query, keys = (x.reshape(-1, n, layer.head_dim) for x, n in zip((q, k), heads))
        q_at = [0, *forward_batch.extend_seq_lens.cumsum(0).tolist()]
        kv_at = forward_batch.prefix_chunk_cu_seq_lens[forward_batch.prefix_chunk_idx].tolist() if prefix else q_at
        return lse_base.one_row(query, keys, lse, q_at, kv_at, layer.scaling)

    lse_base.to_natural(wrapped, path, lse, row, (*path[:-1], "new tokens" if prefix else "prefix"))
