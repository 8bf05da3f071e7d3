"""Correction of vllm.yarn-attention-factor.

YaRN turns queries and keys, and makes them longer. The engine computes that factor of `factor` alone, where a checkpoint may
name another one. The table is written anew in its place: code that was compiled for it, and graphs, read it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.yarn_scale import of_pair, usual_scale
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
    """`attention_factor`, else what `mscale` and `mscale_all_dim` ask for. None where the engine's is it.

    Transformers and 0.30.0 take the pair of every checkpoint.
    """
    factor, own = rope.get("factor"), rope.get("attention_factor")
    if factor and own is None:
        own = of_pair(rope)
    return None if not factor or own in (None, usual_scale(factor)) else float(own)
