"""Correction of sglang.stale-prefill-fallback.

Only prefills read `forward_prefill_metadata` in `forward_extend`, once the fallback is passed by.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute

#: Modes of EAGLE's and others' speculative steps: they have metadata of their own
SPECULATIVE = frozenset({"TARGET_VERIFY", "DRAFT_EXTEND", "DRAFT_EXTEND_V2"})


def sees_a_fallback(target: Any, instance: Any, forward_batch: Any) -> bool:
    left = instance.forward_prefill_metadata
    return left is not None and left.fallback_to_flashinfer_impl and speculative(forward_batch)


def forward_extend(call: Call, instance: Any) -> Any:
    """A speculative step does not see the last prefill's metadata where that fell back to FlashInfer's path."""
    with attribute(instance, "forward_prefill_metadata", None):
        result = call()
    call.corrected()
    return result


def speculative(forward_batch: Any) -> bool:
    return forward_batch.forward_mode._name_ in SPECULATIVE  # `name` is a property in Python, and takes thrice as long
