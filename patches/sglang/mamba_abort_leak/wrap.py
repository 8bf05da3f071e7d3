"""Correction of sglang.mamba-abort-leak.

A prompt whose prefix is cached gets a copy of that prefix's state before it is known whether it fits into the batch. One that
has to wait gives the copy back: it is matched anew before it is tried again.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def has_a_copy(target: Any, instance: Any, req: Any) -> bool:
    return req.mamba_pool_idx is not None and type(instance.tree_cache).__name__ == "MambaRadixCache"


def add_one_req(call: Call, instance: Any, req: Any) -> Any:
    result = call()
    if all(one is not req for one in instance.can_run_list[-1:]):
        give_back(instance.tree_cache.req_to_token_pool.mamba_pool, req)
        call.corrected()
    return result


def give_back(pool: Any, request: Any) -> None:
    """`mamba_pool_idx`: the slot of the request's state, a tensor without dimensions."""
    pool.free(request.mamba_pool_idx.unsqueeze(-1))
    request.mamba_pool_idx = None
