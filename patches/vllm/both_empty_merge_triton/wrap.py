"""Correction of vllm.both-empty-merge-triton."""

from __future__ import annotations

from typing import Any

from attnfix.patches.vllm import both_empty


def compute_prefill_context(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """Either context loop: rows of requests without context are neutral, whatever the merges of their chunks left."""
    return both_empty.neutralize(wrapped, args, kwargs, True)
