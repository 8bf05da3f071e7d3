"""Correction of vllm.partial-hit-assert."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def init(call: Call, instance: Any) -> None:
    """The scheduler of an engine core, which makes the cache manager, and asks it as no prefix has been looked up."""
    call()
    coordinator = instance.kv_cache_manager.coordinator
    if getattr(coordinator, "enable_partial_hash_hits", False) and refused(coordinator):
        coordinator.enable_partial_hash_hits = False
        instance.mamba_partial_cache_hit = False
        call.corrected()


def refused(coordinator: Any) -> bool:
    """Whether a group of layers has a manager that finds whole blocks alone, and blocks that are longer than a hash."""
    return any(
        not manager.supports_fine_grained_hash_lookup and manager.block_size != coordinator.hash_block_size
        for manager in coordinator.single_type_managers
    )
