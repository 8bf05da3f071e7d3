"""Correction of sglang.falcon-h1-tensor-parallel.

A layer of Falcon-H1 adds what attention and Mamba2 give, and then adds the ranks' sums. Both projections are to give a rank's
part: that of Mamba2 is told so, as that of attention is.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def init(call: Call, instance: Any) -> Any:
    result = call()
    projection = instance.mamba.out_proj
    shared = projection.tp_size == instance.attn_tp_size > 1  # by the ranks that the layer adds over
    if shared and projection.reduce_results and not instance.o_proj.reduce_results:
        keep(projection)
        call.corrected()
    return result


def keep(projection: Any) -> None:
    """What the projection does with the ranks' parts."""
    projection.reduce_results = False
