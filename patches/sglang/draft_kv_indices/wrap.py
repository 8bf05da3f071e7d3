"""Correction of sglang.draft-kv-indices.

The engine allocates [steps, max_bs * max_context_len] and hands row i to the backend of step i. `max_context_len` has no other
use in the call, and those backends have one of their own: so the call sees the length that a request takes up in a row.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def has_branches(target: Any, instance: Any) -> bool:
    """With topk 1 the engine's own buffer is large enough."""
    return instance.topk != 1


def init_cuda_graph_state(call: Call, instance: Any, max_bs: int) -> Any:
    """A buffer [steps, max_bs * room] of int32.

    Where it cannot be had, for memory or the index kernel's 32-bit offsets, the engine gets the buffer it would have had.
    """
    context, steps = instance.max_context_len, instance.speculative_num_steps
    wide = room(instance)
    if steps * max_bs * wide >= 2**31:
        raise ValueError(f"KV indices of {max_bs} requests are out of reach of 32-bit offsets; lower --cuda-graph-max-bs")
    require_memory(own=4 * steps * max_bs * context, wide=4 * steps * max_bs * wide)
    try:
        instance.max_context_len = wide
        result = call()
    finally:
        instance.max_context_len = context
    call.corrected()
    return result


def require_memory(own: int, wide: int) -> None:
    """Raise ValueError if a buffer of `wide` bytes takes over a quarter of the GPU memory that one of `own` bytes leaves free.

    The graphs are captured after it, and prefill runs beside it, in that memory. How much they take is not known here; what
    starts with a quarter to spare starts with this buffer, too.
    """
    import torch

    if not torch.cuda.is_initialized():
        return
    free = available()
    if wide - own > (free - own) // 4:
        raise ValueError(
            f"KV indices take {(wide - own) >> 20} MB more, over a quarter of the {max(free - own, 0) >> 20} MB that are left "
            "for CUDA graphs and activations; lower --cuda-graph-max-bs, --context-length or --mem-fraction-static"
        )


def available() -> int:
    """Bytes that can be had on the current GPU. Where it has none of its own, CUDA does not count what the page cache holds."""
    import torch

    free = torch.cuda.mem_get_info()[0]
    if getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "is_integrated", False):
        import psutil  # the engine's requirement

        free = max(free, psutil.virtual_memory().available)
    return free


def room(backend: Any) -> int:
    """KV indices of one request in one row: `topk` branches of the context, each with the tokens drafted so far."""
    return backend.topk * (backend.max_context_len + backend.speculative_num_steps)
