"""Correction of sglang.trtllm-mha-kv-scales.

Attention is linear in the values: what the kernel was not told of their scale, its result is multiplied by. FlashInfer takes a
scale in this place in every release, but not the same kinds of it.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute

#: What the engine gets wrong: by what kind of cache
OF_KEYS, OF_VALUES = "16 bits", "FP8"


def misapplied(target: Any, instance: Any, layer: Any) -> str | None:
    """Which scale is misapplied, if the checkpoint brings one."""
    kind = cache_of(instance.data_type)
    name = {OF_KEYS: "k_scale_float", OF_VALUES: "v_scale_float"}.get(kind or "")
    return kind if name and getattr(layer, name, None) not in (None, 1.0) else None


def cache_of(dtype: Any) -> str | None:
    """Numbers of 16 bits were never divided by a scale; of those that were, this backend reads float8_e4m3fn."""
    if dtype.itemsize > 1:
        return OF_KEYS
    return OF_VALUES if str(dtype) == "torch.float8_e4m3fn" else None


def forward(call: Call, instance: Any, layer: Any) -> Any:
    """`forward_decode`, `forward_extend`: a layer's attention, or its capture in a CUDA graph. Returns [tokens, heads * d]."""
    if call.found == OF_KEYS:
        with attribute(layer, "k_scale_float", None):
            result = call()
    else:
        result = call().mul_(layer.v_scale_float)
    call.corrected()
    return result
