"""Correction of sglang.trtllm-mha-draft-pool.

A draft worker has the target's allocator and a KV pool of its own. The backend takes the pool of the allocator for its own, and
reads drafts through the target's table of window layers.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def drafts_beside_windows(target: Any, instance: Any, model_runner: Any) -> bool:
    """Whether the pool that the backend takes is not the one that the draft model's KV lies in."""
    if not model_runner.is_draft_worker or reads_the_targets_pool(model_runner.spec_algorithm):
        return False
    pool = model_runner.token_to_kv_pool_allocator.get_kvcache()
    return hasattr(pool, "layers_mapping") and pool is not model_runner.token_to_kv_pool


def reads_the_targets_pool(algorithm: Any) -> bool:
    """Whether drafts of this algorithm have no KV of their own."""
    known = getattr(algorithm, "is_frozen_kv_mtp", None)
    return known is not None and known()


def init(call: Call, instance: Any, model_runner: Any) -> None:
    call()
    own = window_pool(instance, model_runner.token_to_kv_pool)
    vars(instance).update(use_sliding_window_kv_pool=own is not None, _swa_kv_pool=own)
    call.corrected()


def window_pool(backend: Any, pool: Any) -> Any:
    """The draft model's pool, if it has layers with a window; else None."""
    return pool if hasattr(pool, "layers_mapping") else None
