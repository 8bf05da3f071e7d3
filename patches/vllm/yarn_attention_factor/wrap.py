"""Correction of vllm.yarn-attention-factor.

YaRN turns queries and keys, and makes them longer. The engine computes that factor of `factor` alone, where a checkpoint may
name another one. The table is written anew in its place: code that was compiled for it, and graphs, read it there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.current_config import current, kept_here

#: Another platform's own embedding may keep copies of its table
_CLASSES = "YaRNScalingRotaryEmbedding", "MRotaryEmbedding"
#: From 0.23.0 on, ROCm has a second table for compiled code where the first one is not bfloat16
_TABLES = "cos_sin_cache", "cos_sin_cache_bf16"


def unread(target: Any, instance: Any, rope_scaling: Any = None, rope_parameters: Any = None) -> float | None:
    """The checkpoint's own factor. Up to 0.11.2, its settings of RoPE have the other name."""
    rope = rope_parameters or rope_scaling
    asked = own_scale(rope) if rope and rope.get("rope_type") == "yarn" else None
    server = current()
    return None if asked is None or not (server is None or kept_here(target, server)) else asked


def get_rope(call: Call, instance: Any, rope_scaling: Any = None, rope_parameters: Any = None) -> Any:
    """Layers with the same settings share one rotary embedding: it is corrected with the first of them.

    Another factor than the engine's usual one comes from settings that are the engine's alone, and stays.
    """
    rotary, engine = call(), call.target.function.__globals__
    known = type(rotary) in [engine.get(name) for name in _CLASSES]
    if known and rotary.mscale == usual_scale((rope_parameters or rope_scaling)["factor"]):
        rotary.mscale = scale(call.found)
        table = rotary._compute_cos_sin_cache()
        for name in _TABLES:
            if (its := getattr(rotary, name, None)) is not None:
                its.copy_(table)
        call.corrected()
    return rotary


def scale(asked: float) -> float:
    """Of queries and of keys."""
    return asked


def own_scale(rope: Mapping[str, Any]) -> float | None:
    """`attention_factor`, else what both `mscale` and `mscale_all_dim` give. None where the engine's is it.

    Transformers and 0.30.0 take both anyhow. The first config.json of Mistral Medium 3.5, and quantized copies, have 1 and 1 by
    mistake, and no scaling of queries; Ministral 3 has both and means them.
    """
    factor, own = rope.get("factor"), rope.get("attention_factor")
    pair: tuple[Any, Any] = rope.get("mscale"), rope.get("mscale_all_dim")
    if factor and own is None and all(pair) and rope.get("llama_4_scaling_beta"):
        own = usual_scale(factor, pair[0]) / usual_scale(factor, pair[1])
    return None if not factor or own in (None, usual_scale(factor)) else float(own)


def usual_scale(factor: float, times: float = 1.0) -> float:
    return 0.1 * times * math.log(factor) + 1.0 if factor > 1 else 1.0
