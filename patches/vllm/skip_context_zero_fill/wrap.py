"""Correction of vllm.skip-context-zero-fill.

The target allocates its output by one `torch.zeros(tokens, heads, v_head_dim, …)`, and has no other use for the name `torch`.
So its own code is run with that name bound to something whose `zeros` is `torch.empty`: exact, the same in every thread, and
for less than a microsecond. A function mode around the call did the same, at tens of microseconds for every tensor it passed.
"""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import Any

from attnfix.compat.fix import NOT_NEEDED
from attnfix.patches.rebound import rebound
from attnfix.patches.vllm import empty_rows


def run_prefill_context_chunk(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`(prefill, chunk_idx, q, k, v)`. Rows that the kernel does not write would be undefined: they are neutralised."""
    function = wrapped.engine_function
    if function is None:  # not the innermost correction
        return NOT_NEEDED
    result = wrapped.run(unfilled(function), instance, *args, **kwargs)
    try:
        prefill, chunk = kwargs["prefill"], kwargs["chunk_idx"]
        if empty_rows.some_in(prefill.chunked_context, chunk):
            empty_rows.neutralize(result, prefill, chunk)
    except Exception:
        wrapped(*args, **kwargs)  # its result is what the engine gets, once this fix has been disarmed
        raise
    wrapped.corrected()
    return result


@cache
def unfilled(function: FunctionType) -> FunctionType:
    """`function` with `torch.zeros` read as `torch.empty`; all other globals are its own, as they are when it runs."""
    import torch

    class Torch:
        def zeros(self, *args: Any, **kwargs: Any) -> Any:
            return torch.empty(*args, **kwargs)

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    return rebound(function, torch=Torch())
