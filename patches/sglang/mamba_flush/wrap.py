"""Correction of sglang.mamba-flush: a pool of recurrent states that is emptied holds zeros, as one that was just made."""

from __future__ import annotations

from typing import Any


def keeps(target: Any, instance: Any) -> bool:
    """Whether a state is not free: those that are free hold zeros."""
    return len(instance.free_slots) < instance.size


def clear(call: Any, instance: Any) -> Any:
    result = call()
    wipe(instance.mamba_cache)
    call.corrected()
    return result


def wipe(cache: Any) -> None:
    """`conv`: one tensor [layers, slots, …] or a list of such; `temporal` [layers, slots, …]. Drafts' are written anew."""
    for states in (*(cache.conv if isinstance(cache.conv, list) else [cache.conv]), cache.temporal):
        states.zero_()
