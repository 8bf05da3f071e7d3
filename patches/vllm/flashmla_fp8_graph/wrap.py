"""Correction of vllm.flashmla-fp8-graph."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def keeps_no_address(target: Any, instance: Any) -> bool:
    return instance.is_fp8_kvcache and instance.cg_buf_num_splits is not None


def build_decode(call: Call, instance: Any) -> Any:
    """Returns FlashMLADecodeMetadata, whose `scheduler_metadata` holds int32 tensors [parts, 8] and [requests + 1].

    The buffers are those that the engine's own `__init__` makes for full graphs, and then leaves unused.
    """
    result = call()
    schedule = result.scheduler_metadata
    tiles = kept(instance.cg_buf_tile_scheduler_metadata, schedule.tile_scheduler_metadata)
    splits = kept(instance.cg_buf_num_splits, schedule.num_splits)
    schedule.tile_scheduler_metadata, schedule.num_splits = tiles, splits  # both or neither
    call.corrected()
    return result


def kept(buffer: Any, made: Any) -> Any:
    """`made`, at an address that stays. Raises RuntimeError, as the engine's own copy would, where the buffer is too small."""
    return buffer[: len(made)].copy_(made)
