"""Correction of sglang.layered-eagle-last-slot.

`req_to_hidden_states_pool` [requests, draft layers - 1, hidden] keeps the last hidden states of each request, in the row of
its slot. `req_to_token` has a row for each slot that the pool of requests hands out. Attention backends are made behind the
buffer, and before CUDA graphs record where it lies.
"""

from __future__ import annotations

from typing import Any


def lacks_rows(target: Any, instance: Any) -> bool:
    """Whether the pool of requests hands out slots behind the buffer, which one draft layer alone does not use."""
    buffer = instance.req_to_hidden_states_pool
    return buffer.shape[1] > 0 and buffer.shape[0] < slots(instance.req_to_token_pool)


def slots(pool: Any) -> int:
    """Rows that slots of requests address, that of padding among them."""
    return pool.req_to_token.shape[0]  # type: ignore[no-any-return]


def init_attention_backend(call: Any, instance: Any) -> Any:
    """Nothing is in the buffer yet."""
    buffer = instance.req_to_hidden_states_pool
    instance.req_to_hidden_states_pool = buffer.new_empty(slots(instance.req_to_token_pool), *buffer.shape[1:])
    call.corrected()
    return call()
