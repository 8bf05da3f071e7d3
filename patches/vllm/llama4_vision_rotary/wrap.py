"""Correction of vllm.llama4-vision-rotary: `cos_sin_cache` is complex64 [patches + 1, 1, head / 2], cos + i·sin."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute

_CAST = "_match_cos_sin_cache_dtype"


def is_complex(target: Any, instance: Any) -> bool:
    """Whether the engine's cast would drop half of the table."""
    return instance.cos_sin_cache.is_complex()


def forward_native(call: Call, instance: Any) -> Any:
    def move(query: Any) -> None:
        if (table := moved(instance.cos_sin_cache, query)) is not instance.cos_sin_cache:
            instance.cos_sin_cache = table

    call.corrected()
    with attribute(instance, _CAST, call.guard(move, getattr(instance, _CAST))):
        return call()


def moved(table: Any, query: Any) -> Any:
    return table.to(query.device)
