"""Correction of sglang.future-slots.

The newest token of a request that decodes lies in a slot of a ring until it decodes again. Meanwhile each batch of prompts
takes a slot for each of its prompts, also for one that it computes in part. A prompt takes one for each of its parts, and all
parts together are no more than what the KV cache holds.
"""

from __future__ import annotations

from typing import Any


def slots(running: int, tokens: int, chunk: int) -> int:
    """Slots that `running` requests need, whose prompts come in parts of `chunk` of the cache's `tokens`; 0 where the engine's
    three for each request are enough.

    A part is at least half a chunk: it is cut to whole pages. `running` slots more are those of the next step."""
    parts = 2 * tokens // chunk
    return 2 * running + parts if parts > running else 0


def in_chunks(target: Any, instance: Any, server_args: Any = None) -> bool:
    """Whether steps overlap, prompts come in parts, and the server decodes beside them. Up to 0.5.3 the ring is that of a
    worker's client."""
    launched = server_args or instance.server_args
    overlaps = server_args is not None or instance.enable_overlap
    return overlaps and (launched.chunked_prefill_size or -1) > 0 and launched.disaggregation_mode == "null"


def make_ring(call: Any, instance: Any, server_args: Any = None) -> Any:
    """`instance`: the scheduler, or with `server_args` the client, which has numbers and ring when it is made."""
    result = call()
    owner, launched = (instance, instance.server_args) if server_args is None else (instance.worker, server_args)
    running = owner.max_running_requests
    ring = getattr(instance, "future_map", instance)
    wanted = slots(running, owner.max_total_num_tokens, launched.chunked_prefill_size)
    if wanted > getattr(ring, "future_limit", 0):  # a ring is never made shorter
        widen(ring, wanted, running)
        call.corrected()
    return result


def widen(ring: Any, wanted: int, running: int) -> None:
    """Nothing is in the ring yet. Behind its end is room for a batch that begins at the last slot."""
    if not hasattr(ring, "future_limit"):  # up to 0.5.2
        ring.future_token_ids_limit = wanted
        ring.future_token_ids_map = ring.future_token_ids_map.new_empty(wanted + 2 * running)
        return
    ring.future_limit, ring.future_buffer_len = wanted, wanted + 2 * running
    if hasattr(ring, "token_ids_buf"):  # with drafts, tables are made of that length later
        ring.token_ids_buf = ring.token_ids_buf.new_empty(ring.future_buffer_len)
