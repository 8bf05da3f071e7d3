"""Correction of vllm.dynamic-ntk-base.

Dynamic NTK scales the base of the rotary embedding by how far a request is beyond the length that the model was trained for.
The engine's one table scales it as if each request were `factor` times that long. Where none can grow beyond it, the base is
the checkpoint's own. The table is written anew in its place: code that was compiled for it, and graphs, read it there.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute
from attnfix.patches.vllm.shared.current_config import current, kept_here

_CLASS = "DynamicNTKScalingRotaryEmbedding"
#: On an embedding: its table is the corrected one
_MARK = "_attnfix_base_as_trained"


def scales(target: Any, instance: Any, max_position: int, rope_scaling: Any = None, rope_parameters: Any = None) -> bool:
    """Whether the base is scaled though no request is longer than `max_position`. Up to 0.11.2, the settings of RoPE have the
    other name."""
    rope, server = rope_parameters or rope_scaling, current()
    if not rope or rope.get("rope_type") != "dynamic" or "alpha" in rope or (rope.get("factor") or 1) <= 1:
        return False
    if server is None or server.model_config is None or server.model_config.max_model_len > max_position:
        return False
    return kept_here(target, server)


def get_rope(call: Call, instance: Any) -> Any:
    """Layers with the same settings share one rotary embedding: it is corrected with the first of them."""
    rotary = call()
    if type(rotary) is call.target.function.__globals__[_CLASS] and not hasattr(rotary, _MARK):
        rows = table(rotary)
        rotary.cos_sin_cache[: len(rows)].copy_(rows)  # no request has a position behind them
        setattr(rotary, _MARK, True)
        call.corrected()
    return rotary


def table(rotary: Any) -> Any:
    """[trained length, dim] float32, as the engine computes it where nothing is scaled."""
    with attribute(rotary, "scaling_factor", factor()):
        return rotary._compute_cos_sin_cache()


def factor() -> float:
    return 1
