"""Correction of sglang.mrope-pairs.

The Triton kernel of M-RoPE turns a head's halves against each other, as Qwen's models have it. Where a model turns neighbours,
the layer gets the engine's rotation in torch in the kernel's place, for all its calls: compilers and graphs see that alone.
"""

from __future__ import annotations

import sys
from typing import Any

from attnfix.compat.fix import Call

ROTARY = "sglang.srt.layers.rotary_embedding"


def turns_neighbours(target: Any, instance: Any, is_neox_style: bool) -> bool:
    """Whether the layer pairs neighbours, on a GPU that the kernel runs on."""
    return not is_neox_style and sys.modules[ROTARY]._is_cuda


def init(call: Call, instance: Any, is_neox_style: bool) -> Any:
    result = call()
    vars(instance)["_forward_triton"] = rotation(instance)
    call.corrected()
    return result


def rotation(layer: Any) -> Any:
    """The engine's own in torch, which reads the style."""
    return layer._forward_native
