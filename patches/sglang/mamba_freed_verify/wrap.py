"""Correction of sglang.mamba-freed-verify.

A verification writes the state of a request that crosses a track interval into one of the request's two buffers. A request
that has ended has none any more. Slot 0 of the pool is nobody's: the engine itself points rows of padding at it.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call

_NOBODY = 0


def ended(target: Any, instance: Any, batch: Any, track_positions: Any = None) -> list[tuple[int, Any]]:
    """(row, who has the number of its next buffer) of each request whose buffers are no longer its own.

    `track_positions` is extra_buffer_lazy's plan: the engine caches no buffer that the plan may still write.
    """
    if track_positions is not None:
        return []
    return [(row, one) for row, one in enumerate(map(_holder, batch.reqs)) if one.mamba_next_track_idx is None]


def _holder(request: Any) -> Any:
    """The request itself up to 0.5.18, its KV record from 0.5.19 on."""
    return request if hasattr(request, "mamba_next_track_idx") else request.kv


def set_mamba_track_indices_from_reqs(call: Call, instance: Any, batch: Any) -> Any:
    """`batch.mamba_track_indices`: a slot for each request, int64. Up to 0.5.15.post1, the engine takes no missing number."""
    for _, holder in call.found:
        holder.mamba_next_track_idx = 0
    try:
        result = call()
    finally:
        for _, holder in call.found:
            holder.mamba_next_track_idx = None
    for row, _ in call.found:
        point_at_nobody(batch.mamba_track_indices, row)
    call.corrected()
    return result


def point_at_nobody(slots: Any, row: int) -> None:
    slots[row].fill_(_NOBODY)
