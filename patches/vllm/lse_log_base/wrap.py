"""Corrections of vllm.lse-log-base: both parts of MLA prefill, the new tokens and each context chunk, alike.

The targets return (out, lse), or out alone where there is nothing to merge; lse: [heads, tokens] float32. Arguments come by
name, since signatures differ. Up to 0.20.2 the targets are methods of the attention layer, `(prefill, q, k, v,
return_softmax_lse)` and `(prefill, chunk_idx, q, k, v)`; from 0.21.0 of the prefill backend, without `prefill`, and from 0.28.0
with a `chunk` object. What tells where requests begin is read at a kernel path's first call alone.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from attnfix.compat.fix import NOT_NEEDED
from attnfix.patches import lse_base

_TRTLLM = "trtllm_ragged_attention_deepseek"
_FLASHINFER = "BatchPrefillWithRaggedKVCacheWrapper"
#: The other half of the merge
_OTHER: dict[Any, str] = {"new tokens": "context", "context": "new tokens"}


def trtllm_new_tokens(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    path = _TRTLLM, "new tokens", kwargs["q"].dtype
    if not kwargs["return_softmax_lse"] or path in wrapped.state.settled:
        return NOT_NEEDED
    result = wrapped(*args, **kwargs)

    def starts() -> tuple:
        at = (kwargs.get("prefill") or instance._prefill_metadata).query_start_loc
        return at, at

    return _natural(wrapped, path, result, instance.scale, starts, **kwargs)


def trtllm_context_chunk(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    path = _TRTLLM, "context", kwargs["q"].dtype
    if path in wrapped.state.settled:
        return NOT_NEEDED
    result = wrapped(*args, **kwargs)

    def starts() -> tuple:
        if chunk := kwargs.get("chunk"):
            return chunk.query_start_loc, chunk.cu_seq_lens
        prefill = kwargs.get("prefill") or instance._prefill_metadata
        return prefill.query_start_loc, prefill.chunked_context.cu_seq_lens[kwargs["chunk_idx"]]

    return _natural(wrapped, path, result, instance.scale, starts, **kwargs)


def flashinfer_new_tokens(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    if not kwargs["return_softmax_lse"]:
        return NOT_NEEDED
    kernel = kwargs["prefill"].prefill_main if "prefill" in kwargs else instance._prefill_main
    return _planned(wrapped, instance, kernel, "new tokens", args, kwargs)


def flashinfer_context_chunk(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    kernels = kwargs["prefill"].prefill_chunks if "prefill" in kwargs else instance._prefill_chunks
    kernel = kernels[kwargs["chunk"].index if "chunk" in kwargs else kwargs["chunk_idx"]]
    return _planned(wrapped, instance, kernel, "context", args, kwargs)


def _planned(wrapped: Any, instance: Any, kernel: Any, part: str, args: tuple, kwargs: dict) -> Any:
    """FlashInfer's wrapper knows by itself where requests begin: the metadata of 0.21.0-0.27.1 does not reach its backend."""
    path = _FLASHINFER, getattr(kernel, "_backend", "?"), part, kwargs["q"].dtype
    turned = tokens_first(wrapped.engine_function)
    if not turned and path in wrapped.state.settled:
        return NOT_NEEDED
    result = wrapped(*args, **kwargs)
    if turned:
        result = result[0], result[1].t().contiguous()
    starts = lambda: (kernel._qo_indptr_buf, kernel._kv_indptr_buf)  # noqa: E731
    natural = _natural(wrapped, path, result, instance.scale, starts, **kwargs)
    if turned and not hasattr(result[1], lse_base.NATURAL):
        wrapped.corrected()
    return natural


def tokens_first(function: FunctionType | None) -> bool:
    """Whether the engine's function hands FlashInfer's LSE on as it comes, [tokens, heads], as 0.10.0-0.10.2 do."""
    return function is not None and "transpose" not in function.__code__.co_names


def _natural(
    wrapped: Any, path: tuple, result: tuple, scale: float, starts: Callable[[], tuple], *, q: Any, k: Any, **others: Any
) -> tuple:
    lse = result[1]

    def row() -> tuple[float, float] | None:
        q_at, kv_at = starts()
        return lse_base.one_row(q, k, lse.t(), q_at.tolist(), kv_at.tolist(), scale)

    lse_base.to_natural(wrapped, path, lse, row, tuple(_OTHER.get(name, name) for name in path))
    return result
