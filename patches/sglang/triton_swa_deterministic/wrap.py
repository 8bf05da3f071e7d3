"""Correction of sglang.triton-swa-deterministic.

`out_cache_loc` are slots of the full pool. The call reads them as slots of the layer's own pool, and nothing else of them.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared.requests import of_requests


def attends_in_window_pool(target: Any, instance: Any, layer: Any, forward_batch: Any) -> bool:
    return in_window_pool(layer, forward_batch.token_to_kv_pool)


def forward_extend_unified(call: Call, instance: Any, forward_batch: Any) -> Any:
    """`out_cache_loc`: int64 [tokens], shown as slots of the sliding-window pool."""
    loc = forward_batch.out_cache_loc
    try:
        forward_batch.out_cache_loc = slots(forward_batch.token_to_kv_pool, loc)
        result = call()
    finally:
        forward_batch.out_cache_loc = loc
    if of_requests(forward_batch):
        call.corrected()
    return result


def in_window_pool(layer: Any, pool: Any) -> bool:
    """Whether the layer attends in a window and its KV lies in a pool of window layers."""
    if layer.sliding_window_size is None or layer.sliding_window_size < 0:
        return False
    _, sliding = getattr(pool, "layers_mapping", {}).get(layer.layer_id, (0, False))
    return sliding and getattr(pool, "full_to_swa_index_mapping", None) is not None


def slots(pool: Any, loc: Any) -> Any:
    """Where the pool's own `set_kv_buffer` has just written these tokens."""
    ahead = getattr(pool, "swa_loc", None)
    return pool.translate_loc_from_full_to_swa(loc) if ahead is None else ahead
