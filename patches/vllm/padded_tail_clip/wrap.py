"""Correction of vllm.padded-tail-clip."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def is_padded(
    target: Any,
    instance: Any,
    request: Any,
    num_new_tokens: int,
    num_new_local_computed_tokens: int = 0,
    num_external_computed_tokens: int = 0,
) -> bool:
    """Whether the row is one token of a request that begins, and placeholders: more tokens than the request has left."""
    if num_new_tokens == 1 or request.status.name == "RUNNING":
        return False
    computed = request.num_computed_tokens + num_new_local_computed_tokens + num_external_computed_tokens
    return bool(computed + 1 == request.num_tokens)


def block_aligned(call: Call, instance: Any, num_new_tokens: int) -> int:
    """Returns how many tokens of the row are scheduled: one, and a placeholder for each draft."""
    clipped: int = call()
    whole = unclipped(clipped, num_new_tokens)
    if whole != clipped:
        call.corrected()
    return whole


def unclipped(clipped: int, asked: int) -> int:
    return asked
