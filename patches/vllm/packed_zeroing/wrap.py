"""Correction of vllm.packed-zeroing."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any


def lies_within_blocks(target: Any, instance: Any, static_forward_context: Mapping[str, Any]) -> bool:
    """Whether a layer's part of each block begins behind another layer's."""
    return any(begins_within(getattr(layer, "kv_cache", None)) for layer in static_forward_context.values())


def begins_within(cache: Any) -> bool:
    """Whether a cache begins within the first block of its memory, as the parts of several layers do in a packed one."""
    import torch

    return isinstance(cache, torch.Tensor) and 0 < cache.storage_offset() < max(cache.stride())


def clear_whole_blocks(call: Any, instance: Any, static_forward_context: Mapping[str, Any]) -> Any:
    """The engine clears as many bytes as lie between two blocks, from where a layer's part begins: they are whole blocks."""
    moved = {
        name: SimpleNamespace(kv_cache=at_the_start(layer.kv_cache))
        for name, layer in static_forward_context.items()
        if begins_within(getattr(layer, "kv_cache", None))
    }
    result = call(static_forward_context={**static_forward_context, **moved})
    call.corrected()
    return result


def at_the_start(cache: Any) -> Any:
    """The same view, from the first byte of its memory on."""
    return cache.as_strided(cache.shape, cache.stride(), 0)
