"""Correction of vllm.empty-context-chunks.

Up to 0.20.2 the target is a method of the attention layer, `(prefill, chunk_idx, q, k, v)`; from 0.21.0 one of the prefill
backend, `(chunk_idx, q, k, v)`, which holds the batch's metadata. Arguments come by name.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import NOT_NEEDED
from attnfix.patches.vllm import empty_rows


def run_prefill_context_chunk(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """After a chunk in which some request has no context: its rows are neutralised."""
    prefill, chunk = kwargs.get("prefill") or instance._prefill_metadata, kwargs["chunk_idx"]
    if not empty_rows.some_in(prefill.chunked_context, chunk):
        return NOT_NEEDED
    result = wrapped(*args, **kwargs)
    empty_rows.neutralize(result, prefill, chunk)
    wrapped.corrected()
    return result
