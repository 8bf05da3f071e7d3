"""Correction of sglang.window-deferred-chunk.

Before each turn, the scheduler caches what was computed of the prompt that comes in chunks: all of `fill_ids`, which a chunk
cuts to its end. A chunk that is put off, because window layers have no slots for it, leaves the whole prompt there.

From 0.5.12 on, prefill servers alone cache it nevertheless. On others, nobody reads `fill_ids` until the next turn makes it
anew.
"""

from __future__ import annotations

from typing import Any


def has_window_slots(target: Any, instance: Any) -> bool:
    """Whether window layers have slots of their own; others put no chunk off."""
    return bool(instance.is_hybrid_swa)


def add_chunked_req(call: Any, instance: Any, req: Any) -> Any:
    """`req.prefix_indices` [tokens]: slots of what is computed; the engine looks at the prompt anew in the next turn."""
    result = call()
    if result is req and put_off(instance, req):
        req.fill_ids = computed(req)
        call.corrected()
    return result


def put_off(adder: Any, req: Any) -> bool:
    """Whether the batch to come has no chunk of the prompt."""
    return not any(one is req for one in adder.can_run_list)


def computed(req: Any) -> Any:
    """The tokens whose KV is there."""
    return req.fill_ids[: len(req.prefix_indices)]
