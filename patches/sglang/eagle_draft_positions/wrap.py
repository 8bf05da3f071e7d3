"""Correction of sglang.eagle-draft-positions.

The engine counts positions on before each draft step, where it has to after it. They begin one lower here. The subtraction is
part of a CUDA graph of draft steps, as the engine's additions are.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def drafts_several(target: Any, instance: Any) -> bool:
    """Whether a draft step runs at all: the first draft comes from the tokens that were accepted before."""
    return instance.speculative_num_steps > 1


def draft_forward(call: Call, instance: Any, forward_batch: Any) -> Any:
    begin(forward_batch.positions)
    result = call()
    call.corrected()
    return result


def begin(positions: Any) -> None:
    """[requests * topk] int64. No forward reads them before the engine has added 1."""
    positions.sub_(1)
