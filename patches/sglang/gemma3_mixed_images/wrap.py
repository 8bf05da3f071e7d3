"""Correction of sglang.gemma3-mixed-images.

The engine reads the images of each prompt of a batch in which one has an image. A prompt without has None in their place; here
it has an empty list of them, and its mask stays causal.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from attnfix.compat.fix import Call

MODEL = "sglang.srt.models.gemma3_mm"


def lacks_images(target: Any, instance: Any, forward_batch: Any) -> bool:
    """Whether a mask is built, and a prompt of the batch has no image."""
    return None in forward_batch.mm_inputs and _on_triton(forward_batch)


def _on_triton(forward_batch: Any) -> bool:
    """Whether the backend at work takes such masks."""
    home = sys.modules[MODEL]
    known = getattr(home, "get_attn_backend", None)  # 0.5.13 and later
    return isinstance(known() if known else forward_batch.attn_backend, home.TritonAttnBackend)


def prepare_attn_masks(call: Call, instance: Any, forward_batch: Any) -> Any:
    own = forward_batch.mm_inputs
    forward_batch.mm_inputs = listed(own)
    try:
        result = call()
    finally:
        forward_batch.mm_inputs = own
    call.corrected()
    return result


def listed(images: list[Any]) -> list[Any]:
    """Of each prompt what lists its images."""
    return [SimpleNamespace(mm_items=()) if one is None else one for one in images]
