"""Correction of sglang.vision-padded-positions.

`mrope_positions` [3, tokens] has a row for time, height and width. The engine pads its first dimension, as that of
tensors with a row for each request. Here it pads the batch without them, and they get columns.
"""

from __future__ import annotations

import sys
from typing import Any

from attnfix.compat.fix import Call

_PARALLEL = "sglang.srt.layers.dp_attention"
#: Models whose attention is split among all ranks, whatever their groups: it would add up heads of different requests
ONE_GROUP = (
    "Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration", "Glm4vForConditionalGeneration",
    "PaddleOCRVLForConditionalGeneration",
)  # fmt: skip


def has_three_rows(target: Any, instance: Any, model_runner: Any) -> bool:
    """Whether the batch has positions of M-RoPE of its own. An idle rank's has none, and half of a batch those of the whole."""
    if instance.mrope_positions is None or instance.tbo_parent_token_range is not None:
        return False
    model = type(model_runner.model).__name__
    if model in ONE_GROUP and sys.modules[_PARALLEL].get_attention_dp_size() > 1:
        target.leave_out(f"the attention of {model} cannot be split by --dp-size, and would mix requests")
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
