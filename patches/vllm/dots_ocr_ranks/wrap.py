"""Correction of vllm.dots-ocr-ranks: [tokens, 1, (q, k, v of a rank's heads)] is split as it is."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute

#: The layer that borrows the function. Its projection gives each rank the query, keys and values of its own heads
LAYER = "DotsVisionAttention"


def is_split_by_head(target: Any, instance: Any) -> bool:
    return type(instance).__name__ == LAYER and instance.tp_size > 1


def split_qkv(call: Call, instance: Any) -> Any:
    """Run the engine's function as on one rank: it gathers nothing, and splits what the layer has."""
    call.corrected()
    with attribute(instance, "tp_size", ranks(instance)):
        return call()


def ranks(instance: Any) -> int:
    """Of which the function is to gather."""
    return 1
