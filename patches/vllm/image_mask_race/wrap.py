"""Correction of vllm.image-mask-race: `is_mm_embed` is a buffer of bool [tokens of a step], its `cpu` is pinned."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def runs_ahead(target: Any, instance: Any) -> bool:
    """Whether the host may write a mask while the last one is copied: in asynchronous scheduling, or for a drafter that does
    not wait for the step's tokens. Memory that is not pinned is read before a copy returns."""
    if not instance.pin_memory:
        return False
    drafts = instance.speculative_config
    return instance.use_async_scheduling or (
        drafts is not None and drafts.use_eagle() and not drafts.disable_padded_drafter_batch
    )


def gather(call: Call, instance: Any) -> Any:
    buffer = instance.is_mm_embed
    buffer.cpu = fresh(buffer.cpu)
    buffer.np = buffer.cpu.numpy()
    call.corrected()
    return call()


def fresh(memory: Any) -> Any:
    """As much. What nobody names any more is not used again before copies out of it have run: torch keeps account of them."""
    import torch

    return torch.empty_like(memory, pin_memory=True)
