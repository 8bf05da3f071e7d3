"""Correction of sglang.fa3-swa-topk.

The call copies the slots of both page tables, cached and draft tokens, into one for window layers, as they are: in the full
pool. It is shown tables of slots in the window layers' own pool.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from attnfix.compat.fix import Call


def has_a_window_pool(target: Any, instance: Any) -> bool:
    return instance.use_sliding_window_kv_pool


def init_sliding_window_attn_spec_metadata(call: Call, instance: Any, metadata: Any, metadata_expand: Any) -> Any:
    """`page_table` of both: int32 [requests or draft tokens, tokens]. Sets `metadata.swa_spec_metadata`."""
    pool = instance.token_to_kv_pool
    shown = in_own_pool(pool, metadata)
    result = call(metadata=shown, metadata_expand=in_own_pool(pool, metadata_expand))
    metadata.swa_spec_metadata = shown.swa_spec_metadata
    call.corrected()
    return result


def in_own_pool(pool: Any, metadata: Any) -> Any:
    """A copy whose page table holds slots of the window layers' pool; the buffers are the same."""
    shown = copy(metadata)
    shown.page_table = pool.translate_loc_from_full_to_swa(metadata.page_table)
    return shown
