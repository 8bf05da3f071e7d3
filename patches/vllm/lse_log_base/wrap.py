"""Corrections of vllm.lse-log-base: both parts of MLA prefill, the new tokens and each context chunk, alike.

The targets return (out, lse), or out alone where there is nothing to merge; lse: [heads, tokens] float32. Up to
0.20.2 the targets are methods of the attention layer, which get the batch's metadata as `prefill`; from 0.21.0 of the prefill
backend, without it, and from 0.28.0 with a `chunk` object. What tells where requests begin is read at a kernel path's first
call alone.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

from attnfix.compat.fix import Call
from attnfix.patches.shared import lse_base

_TRTLLM = "trtllm_ragged_attention_deepseek"
_FLASHINFER = "BatchPrefillWithRaggedKVCacheWrapper"
#: The other half of the merge
_OTHER: dict[Any, str] = {"new tokens": "context", "context": "new tokens"}


def unsettled_trtllm_new_tokens(target: Any, instance: Any, q: Any, return_softmax_lse: bool) -> Any:
    """The path of the kernel, or nothing."""
    path = _TRTLLM, "new tokens", q.dtype
    return path if return_softmax_lse and path not in target.left_alone else None


def trtllm_new_tokens(call: Call, instance: Any, q: Any, k: Any, prefill: Any = None) -> Any:
    def starts() -> tuple:
        at = (prefill or instance._prefill_metadata).query_start_loc
        return at, at

    return _natural(call, call(), instance.scale, starts, q, k)


def unsettled_trtllm_context(target: Any, instance: Any, q: Any) -> Any:
    """The path of the kernel, or nothing."""
    path = _TRTLLM, "context", q.dtype
    return path if path not in target.left_alone else None


def trtllm_context_chunk(
    call: Call, instance: Any, q: Any, k: Any, prefill: Any = None, chunk_idx: int = 0, chunk: Any = None
) -> Any:
    def starts() -> tuple:
        if chunk:
            return chunk.query_start_loc, chunk.cu_seq_lens
        metadata = prefill or instance._prefill_metadata
        return metadata.query_start_loc, metadata.chunked_context.cu_seq_lens[chunk_idx]

    return _natural(call, call(), instance.scale, starts, q, k)


class Planned(NamedTuple):
    """A call of FlashInfer: its wrapper, the path of its kernel, whether the engine hands its LSE on as [tokens, heads].

    The wrapper knows by itself where requests begin: the metadata of 0.21.0-0.27.1 does not reach its backend.
    """

    kernel: Any
    path: tuple
    turned: bool


def unsettled_flashinfer_new_tokens(
    target: Any, instance: Any, q: Any, return_softmax_lse: bool, prefill: Any = None
) -> Planned | None:
    if not return_softmax_lse:
        return None
    return _unsettled(target, prefill.prefill_main if prefill else instance._prefill_main, "new tokens", q)


def unsettled_flashinfer_context(
    target: Any, instance: Any, q: Any, prefill: Any = None, chunk_idx: int = 0, chunk: Any = None
) -> Planned | None:
    kernels = prefill.prefill_chunks if prefill else instance._prefill_chunks
    return _unsettled(target, kernels[chunk.index if chunk else chunk_idx], "context", q)


def _unsettled(target: Any, kernel: Any, part: str, q: Any) -> Planned | None:
    path = _FLASHINFER, getattr(kernel, "_backend", "?"), part, q.dtype
    turned = tokens_first(target.engine_function)
    return Planned(kernel, path, turned) if turned or path not in target.left_alone else None


def flashinfer(call: Call, instance: Any, q: Any, k: Any) -> Any:
    """Either part."""
    kernel, path, turned = call.found
    result = call()
    if turned:
        result = result[0], result[1].t().contiguous()
    starts = lambda: (kernel._qo_indptr_buf, kernel._kv_indptr_buf)  # noqa: E731
    natural = _natural(call, result, instance.scale, starts, q, k, path)
    if turned and not hasattr(result[1], lse_base.NATURAL):
        call.corrected()
    return natural


def tokens_first(function: FunctionType | None) -> bool:
    """Whether the engine's function hands FlashInfer's LSE on as it comes, [tokens, heads], as 0.10.0-0.10.2 do."""
    return function is not None and "transpose" not in function.__code__.co_names


def _natural(
    call: Call, result: tuple, scale: float, starts: Callable[[], tuple], q: Any, k: Any, path: tuple | None = None
) -> tuple:
    lse, path = result[1], path or call.found

    def row() -> tuple[float, float]:
        q_at, kv_at = starts()
        return lse_base.one_row(q, k, lse.t(), q_at.tolist(), kv_at.tolist(), scale)

    lse_base.to_natural(call.target, path, lse, row, tuple(_OTHER.get(name, name) for name in path))
    return result
