"""Correction of vllm.mamba-state-column."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def continues_from_another_column(target: Any, instance: Any, new_req_data: Any) -> int:
    """How many tokens a block of recurrent states holds, where the engine's own size leads to another column; else 0."""
    if not instance._align_mode:
        return 0
    computed = new_req_data.num_computed_tokens
    if computed <= 0:  # no state to continue from, by any size
        return 0
    size = size_of_state_block(instance)
    return size if column(computed, size) != column(computed, instance.cache_config.block_size) else 0


def size_of_state_block(instance: Any) -> int:
    """That of the group of layers, once the first step has looked it up: the engine's kernels go by it. Before, the config's,
    of which the group's is made."""
    spec = instance._mamba_spec
    return int(spec.block_size if spec is not None else instance.cache_config.mamba_block_size)


def column(computed: int, size: int) -> int:
    """Where the state behind so many tokens is, in the request's row of blocks."""
    return (computed - 1) // size


def add_request(call: Call, instance: Any, req_index: int, new_req_data: Any) -> Any:
    """The engine's column is written over on the device, as the engine writes it; the next step reads it."""
    result = call()
    instance._mamba_state_idx_gpu[req_index].fill_(column(new_req_data.num_computed_tokens, call.found))
    call.corrected()
    return result
