"""Correction of sglang.mrope-retraction.

`mrope_positions` [3, tokens] of a request with images has a column for each token of its prompt. A request that was taken back
starts again with prompt and answer; each token of the answer gets the position that decode gave it.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def lacks_positions(target: Any, instance: Any) -> int:
    """Tokens of the answer so far without a position, of a request that was taken back; else 0."""
    images = instance.multimodal_inputs
    if not instance.is_retracted or images is None or images.mrope_positions is None:
        return 0
    return max(0, len(instance.origin_input_ids) + len(instance.output_ids) - images.mrope_positions.shape[1])


def init_next_round_input(call: Call, instance: Any) -> Any:
    images = instance.multimodal_inputs
    images.mrope_positions = extended(images.mrope_positions, call.found)
    call.corrected()
    return call()


def extended(positions: Any, more: int) -> Any:
    """[3, tokens + more]: text goes on behind the largest position, in all rows alike."""
    import torch

    text = positions.max() + 1 + torch.arange(more, dtype=positions.dtype, device=positions.device)
    return torch.cat([positions, text.expand(len(positions), -1)], 1)
