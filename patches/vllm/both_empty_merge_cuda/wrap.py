"""Correction of vllm.both-empty-merge-cuda."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import NOT_NEEDED
from attnfix.patches.vllm.both_empty import CUDA, MERGED_BY, neutralize


def compute_prefill_context(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """Either context loop: rows of requests without context are neutral, whatever the merges of their chunks left."""
    if getattr(args[2].prefill.chunked_context, MERGED_BY, CUDA) is not CUDA:
        return NOT_NEEDED  # as another layer of this batch saw
    return neutralize(wrapped, args, kwargs, CUDA)
