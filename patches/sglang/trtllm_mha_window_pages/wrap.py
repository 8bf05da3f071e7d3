"""Correction of sglang.trtllm-mha-window-pages.

Window layers keep their KV in a pool of their own. The kernel gets the page table of the full pool, and keys of an FP8 cache
are written to slots of the full pool. Both are translated as the window pool does it where it writes.
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

from attnfix.compat.fix import Call


class Kept(NamedTuple):
    """A page table of window layers: made by a layer of this id, of this metadata."""

    layer_id: int
    metadata: Any
    table: Any


_KEPT = "_attnfix_window_pages"
#: Entries of a table that are translated at a time: what a translation needs beside its table stays near 20 MB
_ENTRIES = 1 << 20


def reads_window_pool(target: Any, instance: Any, layer: Any, forward_batch: Any) -> bool:
    return not hasattr(instance, "_get_layer_page_table") and in_window_pool(layer, forward_batch.token_to_kv_pool)


def writes_window_pool(target: Any, instance: Any, layer: Any, forward_batch: Any) -> bool:
    return not hasattr(instance, "_get_layer_cache_loc") and in_window_pool(layer, forward_batch.token_to_kv_pool)


def in_window_pool(layer: Any, pool: Any) -> bool:
    """Whether the layer's KV lies in a pool whose slots follow from those of the full one."""
    _, sliding = getattr(pool, "layers_mapping", {}).get(layer.layer_id, (0, False))
    return sliding and pool.full_to_swa_index_mapping is not None


def forward(call: Call, instance: Any, layer: Any, forward_batch: Any) -> Any:
    metadata = instance.forward_metadata
    shown = copy(metadata)
    shown.page_table = window_table(instance, layer, forward_batch.token_to_kv_pool)
    try:
        instance.forward_metadata = shown
        result = call()
    finally:
        instance.forward_metadata = metadata
    call.corrected()
    return result


def window_table(backend: Any, layer: Any, pool: Any) -> Any:
    """int32 [requests, pages]. Layers run in the order of their ids: the first one of a forward makes it, the others find it.
    So a graph has the launches that make it, and each replay makes it anew."""
    metadata, kept = backend.forward_metadata, vars(backend).get(_KEPT)
    if kept is None or kept.metadata is not metadata or kept.layer_id >= layer.layer_id:
        kept = Kept(layer.layer_id, metadata, pages(pool, metadata.page_table, backend.page_size))
        setattr(backend, _KEPT, kept)
    return kept.table


def pages(pool: Any, table: Any, size: int) -> Any:
    """The pages of the window pool that hold what the pages of the full pool in `table` hold."""
    if table.numel() <= _ENTRIES:
        return pool.translate_loc_from_full_to_swa(table * size) // size
    found, rows = table.new_empty(table.shape), max(1, _ENTRIES // table.shape[1])
    for part, of in zip(found.split(rows), table.split(rows), strict=True):
        part.copy_(pool.translate_loc_from_full_to_swa(of * size) // size)
    return found


def fused_fp8_set_kv_buffer(call: Call, instance: Any, forward_batch: Any) -> Any:
    """`out_cache_loc`: int64 [tokens], shown as slots of the window pool."""
    loc, pool = forward_batch.out_cache_loc, forward_batch.token_to_kv_pool
    try:
        forward_batch.out_cache_loc = slots(pool, loc)
        result = call()
    finally:
        forward_batch.out_cache_loc = loc
    call.corrected()
    return result


def slots(pool: Any, loc: Any) -> Any:
    """Where the pool's own `set_kv_buffer` writes these tokens."""
    ahead = getattr(pool, "swa_loc", None)
    return (pool.translate_loc_from_full_to_swa(loc) if ahead is None else ahead).to(loc.dtype)
