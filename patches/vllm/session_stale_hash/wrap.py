"""Correction of vllm.session-stale-hash."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def stale_hashes(target: Any, instance: Any, session: Any) -> int:
    """How many hashes a session has of blocks that are not computed to their end: one that ends in the dropped token."""
    size = instance.kv_cache_manager.block_pool.hash_block_size
    return max(0, len(session.block_hashes) - session.num_computed_tokens // size)


def _update_request_as_session(call: Call, instance: Any, session: Any) -> None:
    """The engine hashes the blocks that have no hash, once the session has its new tokens."""
    forget(session.block_hashes, call.found)
    call()
    call.corrected()


def forget(hashes: list[Any], stale: int) -> None:
    del hashes[len(hashes) - stale :]
