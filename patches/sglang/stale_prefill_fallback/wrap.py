"""Correction of sglang.stale-prefill-fallback.

`forward_batch` is the fifth argument of `forward_extend(q, k, v, layer, forward_batch, …)` in all releases that are corrected,
which is part of their digests. Only prefills read `forward_prefill_metadata` there, once the fallback is passed by.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import NOT_NEEDED

#: Modes of EAGLE's and others' speculative steps: they have metadata of their own
SPECULATIVE = frozenset({"TARGET_VERIFY", "DRAFT_EXTEND", "DRAFT_EXTEND_V2"})


def forward_extend(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """A speculative step does not see the last prefill's metadata where that fell back to FlashInfer's path."""
    left = instance.forward_prefill_metadata
    if left is None or not left.fallback_to_flashinfer_impl:
        return NOT_NEEDED
    if not speculative(args[4]):
        return NOT_NEEDED
    instance.forward_prefill_metadata = None
    try:
        result = wrapped(*args, **kwargs)
    finally:
        instance.forward_prefill_metadata = left
    wrapped.corrected()
    return result


def speculative(forward_batch: Any) -> bool:
    return forward_batch.forward_mode._name_ in SPECULATIVE  # `name` is a property in Python, and takes thrice as long
