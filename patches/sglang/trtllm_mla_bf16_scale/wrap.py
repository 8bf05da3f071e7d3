"""Correction of sglang.trtllm-mla-bf16-scale.

`k_scale_float` of a layer is what the engine multiplies the scores by. A cache of 16 bits holds keys as they are.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute


def scales_what_is_not_scaled(target: Any, instance: Any, layer: Any) -> bool:
    return getattr(layer, "k_scale_float", None) not in (None, 1.0) and of_16_bits(instance.data_type)


def forward(call: Call, instance: Any, layer: Any) -> Any:
    """`forward_decode` and `forward_extend`: a layer's attention, or its capture in a CUDA graph."""
    with attribute(layer, "k_scale_float", None):
        result = call()
    call.corrected()
    return result


def of_16_bits(dtype: Any) -> bool:
    """Not of FP8 or FP4, whose numbers were divided by a scale."""
    return dtype.itemsize > 1
