"""Correction of sglang.draft-kv-indices.

The engine allocates [steps, max_bs * max_context_len] and hands row i to the backend of step i. `max_context_len` has no other
use in the call, and those backends have one of their own: so the call sees the length that a request takes up in a row.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import NOT_NEEDED


def init_cuda_graph_state(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`(max_bs, max_num_tokens)`. A buffer [steps, max_bs * room] of int32; with topk 1 the engine's own.

    Where it cannot be had, for memory or the index kernel's 32-bit offsets, the engine gets the buffer it would have had.
    """
    if instance.topk == 1:
        return NOT_NEEDED
    context, max_bs = instance.max_context_len, args[0]
    wide = room(instance)
    if instance.speculative_num_steps * max_bs * wide >= 2**31:
        raise ValueError(f"KV indices of {max_bs} requests are out of reach of 32-bit offsets; lower --cuda-graph-max-bs")
    try:
        instance.max_context_len = wide
        result = wrapped(*args, **kwargs)
    except Exception:
        instance.max_context_len = context
        wrapped(*args, **kwargs)  # raises if the error is not ours; else its buffer stays, and this fix is disarmed
        raise
    finally:
        instance.max_context_len = context
    wrapped.corrected()
    return result


def room(backend: Any) -> int:
    """KV indices of one request in one row: `topk` branches of the context, each with the tokens drafted so far."""
    return backend.topk * (backend.max_context_len + backend.speculative_num_steps)
