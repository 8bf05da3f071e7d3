"""Correction of vllm.both-empty-merge-cuda."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared import both_empty


def merges_empty_chunks(target: Any, instance: Any, attn_metadata: Any) -> bool:
    return both_empty.merged_by(attn_metadata.prefill.chunked_context) is both_empty.CUDA


def compute_prefill_context(call: Call, instance: Any, attn_metadata: Any) -> Any:
    """Either context loop: rows of requests without context are neutral, whatever the merges of their chunks left."""
    return both_empty.neutralize(call, attn_metadata.prefill)
