"""Correction of sglang.mamba-retraction.

A request that runs is taken back: its KV, its row and its state become free, and its lock on the radix cache ends. Nothing of
it is cached. From 0.5.4 on it would keep the number of its row, with which it may not match a prefix again.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

from attnfix.compat.fix import Call


def of_states(target: Any, instance: Any) -> bool:
    """Whether the batch's radix cache keeps recurrent states: it cannot end a request without caching it."""
    return type(instance.tree_cache).__name__ == "MambaRadixCache"


def release_req(call: Call, instance: Any) -> Any:
    tree = instance.tree_cache
    if instance.enable_overlap:
        wait(tree.device)
    own = vars(tree)
    own["cache_finished_req"] = MethodType(call.guard(give_back, type(tree).cache_finished_req), tree)
    try:
        return call()
    finally:
        del own["cache_finished_req"]
        call.corrected()


def wait(device: Any) -> None:
    """Let the step in flight end: it writes the request's state, which is zeroed as it becomes free."""
    import torch

    if torch.device(device).type != "cpu":
        torch.get_device_module(device).synchronize()


def give_back(tree: Any, req: Any, is_insert: bool = False) -> None:
    """A token in flight has KV, too: the engine frees that with the step's result."""
    rows, end = tree.req_to_token_pool, len(req.origin_input_ids) + max(len(req.output_ids) - 1, 0)
    tree.token_to_kv_pool_allocator.free(rows.req_to_token[req.req_pool_idx, len(req.prefix_indices) : end])
    rows.free(req.req_pool_idx)
    tree.dec_lock_ref(req.last_node)


def keeps_its_row(target: Any, instance: Any, tree_cache: Any) -> bool:
    """Whether a request that was taken back is about to match a prefix, and still has the number of its former row."""
    return instance.is_retracted and instance.req_pool_idx is not None and type(tree_cache).__name__ == "MambaRadixCache"


def init_next_round_input(call: Call, instance: Any) -> Any:
    forget_row(instance)
    call.corrected()
    return call()


def forget_row(request: Any) -> None:
    request.req_pool_idx = None
