"""Correction of vllm.empty-context-chunks.

Up to 0.20.2 the target is a method of the attention layer, which gets the batch's metadata as `prefill`; from 0.21.0 one of the
prefill backend, which holds it.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared import empty_rows


def has_empty_requests(target: Any, instance: Any, chunk_idx: int, prefill: Any = None) -> bool:
    return empty_rows.some_in((prefill or instance._prefill_metadata).chunked_context, chunk_idx)


def run_prefill_context_chunk(call: Call, instance: Any, chunk_idx: int, prefill: Any = None) -> Any:
    """After a chunk in which some request has no context: its rows are neutralised."""
    result = call()
    empty_rows.neutralize(result, prefill or instance._prefill_metadata, chunk_idx)
    call.corrected()
    return result
