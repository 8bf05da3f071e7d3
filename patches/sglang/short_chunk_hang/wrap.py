"""Correction of sglang.short-chunk-hang."""

from __future__ import annotations

from typing import Any


def has_chunks(target: Any, instance: Any) -> bool:
    """Whether the scheduler cuts prompts at all. How it aligns the cuts is not known before the call."""
    return instance.chunked_prefill_size is not None


def init_deterministic_inference_config(call: Any, instance: Any) -> Any:
    """Sets `truncation_align_size`, in tokens; None: a chunk may end anywhere."""
    result = call()
    fits = fitting(instance.truncation_align_size, instance.chunked_prefill_size)
    if fits != instance.truncation_align_size:
        instance.truncation_align_size = fits
        call.corrected()
    return result


def fitting(alignment: int | None, chunk: int) -> int | None:
    """The alignment, or the chunk where that is smaller: both in tokens, a chunk in whole pages."""
    return chunk if alignment is not None and alignment > chunk else alignment
