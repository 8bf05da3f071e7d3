"""Correction of sglang.mamba-pool-full: cached states are evicted where prompts need more of them than are free."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def missing(target: Any, instance: Any) -> int:
    """How many prompts have no state of their own, beyond those that are free; 0 for other radix caches."""
    if type(instance.tree_cache).__name__ != "MambaRadixCache":
        return 0
    wanted = sum(request.mamba_pool_idx is None for request in instance.reqs)
    return max(0, wanted - instance.req_to_token_pool.mamba_pool.available_size())


def prepare_for_extend(call: Call, instance: Any) -> Any:
    make_room(instance.tree_cache, call.found)
    call.corrected()
    return call()


def make_room(tree: Any, states: int) -> None:
    tree.evict_mamba(states)
