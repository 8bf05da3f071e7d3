"""How much longer YaRN makes queries and keys: both engines' own rule, and what a checkpoint asks for in its place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def usual_scale(factor: float, times: float = 1.0) -> float:
    """The engines' rule, for a context that is `factor` times as long."""
    return 0.1 * times * math.log(factor) + 1.0 if factor > 1 else 1.0


def of_pair(rope: Mapping[str, Any]) -> float | None:
    """The scale that `mscale` and `mscale_all_dim` ask for; None where they ask for none.

    Transformers takes 0 as not given. The first config.json of Mistral Medium 3.5, and quantized copies, have 1 and 1 by
    mistake, and no scaling of queries; Ministral 3 has both and means them.
    """
    pair: tuple[Any, Any] = rope.get("mscale"), rope.get("mscale_all_dim")
    if not all(pair) or not rope.get("llama_4_scaling_beta"):
        return None
    factor = rope.get("factor", 1.0)
    return usual_scale(factor, pair[0]) / usual_scale(factor, pair[1])
