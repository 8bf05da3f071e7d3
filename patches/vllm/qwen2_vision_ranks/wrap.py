"""Correction of vllm.qwen2-vision-ranks.

The projection's outputs are [tokens, 1, (q, k, v)]. Each rank has as many of them in a row as any other, whatever they are.
"""

from __future__ import annotations

import sys
from typing import Any

from attnfix.compat.fix import Call

#: The layer whose projection is split so. dots.ocr borrows the function for one that gives a rank all three of its own heads
LAYER = "Qwen2VisionAttention"


def is_split_in_a_row(target: Any, instance: Any) -> bool:
    return type(instance).__name__ == LAYER and instance.tp_size > 1


def split_qkv(call: Call, instance: Any, qkv: Any) -> Any:
    """Gather what all ranks have, and hand the engine's function the query, keys and values of the rank's heads."""
    call.corrected()
    every = sys.modules["vllm.distributed"].tensor_model_parallel_all_gather(qkv)
    return call(qkv=of_rank(every, instance.tp_size, instance.tp_rank))


def of_rank(every: Any, ranks: int, rank: int) -> Any:
    """[…, 3 × dim] → […, 3 × (dim / ranks)]"""
    return every.unflatten(-1, (3, ranks, -1))[..., rank, :].flatten(-2)
