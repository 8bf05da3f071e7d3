"""Correction of sglang.vision-padded-positions.

`mrope_positions` [3, tokens] has a row for time, height and width. The engine pads its first dimension, as that of
tensors with a row for each request. Here it pads the batch without them, and they get columns.
"""

from __future__ import annotations

import sys
from typing import Any

from attnfix.compat.fix import Call

_PARALLEL = "sglang.srt.layers.dp_attention"


def has_three_rows(target: Any, instance: Any) -> bool:
    """Whether the batch has positions of M-RoPE of its own, and all ranks have this batch. Half of a batch has those of the
    whole. Ranks with images of their own would add up parts of them: encoders up to 0.5.8.post1 know one group of ranks alone.
    """
    if instance.mrope_positions is None or instance.tbo_parent_token_range is not None:
        return False
    if sys.modules[_PARALLEL].get_attention_dp_size() > 1:
        target.leave_out("with --enable-dp-attention, the model's encoder would mix images of different ranks")
        return False
    return True


def pad(call: Call, instance: Any) -> Any:
    """`instance.positions` has a number for each token, those of padding among them, once the batch is padded."""
    positions, instance.mrope_positions = instance.mrope_positions, None
    try:
        result = call()
    finally:
        instance.mrope_positions = positions
    rows, tokens = len(instance.req_pool_indices), len(instance.positions)
    instance.mrope_positions = padded(positions, tokens)
    if rows != len(positions) or tokens != positions.shape[1]:
        call.corrected()
    return result


def padded(positions: Any, tokens: int) -> Any:
    """[3, tokens], with zeros behind what `positions` holds."""
    import torch

    return torch.cat([positions, positions.new_zeros(len(positions), tokens - positions.shape[1])], 1)
