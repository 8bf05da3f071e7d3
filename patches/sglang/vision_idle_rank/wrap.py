"""Correction of sglang.vision-idle-rank.

`mrope_positions` [3, tokens] has a row for time, height and width. The engine makes none for a rank without requests, and pads
those that a batch has. It pads three rows without a column as well.
"""

from __future__ import annotations

from typing import Any


def lacks_positions(target: Any, instance: Any, model_runner: Any, num_tokens: int) -> bool:
    """Whether all tokens of the batch, once it is padded, are padding for a model that has M-RoPE."""
    return (
        instance.mrope_positions is None and num_tokens > 0 and len(instance.positions) == 0 and has_mrope(model_runner)
    )  # fmt: skip


def has_mrope(runner: Any) -> bool:
    """Of the model that the runner runs; up to 0.5.15.post1 the runner says so."""
    owner = runner if hasattr(runner, "model_is_mrope") else runner.model_config
    return bool(owner.model_is_mrope)


def pad(call: Any, instance: Any) -> Any:
    """`instance.positions` [0] are integers on the batch's device."""
    instance.mrope_positions = rows(instance.positions)
    call.corrected()
    return call()


def rows(positions: Any) -> Any:
    return positions.new_empty(3, 0)
