"""Correction of vllm.skip-context-zero-fill.

The target allocates its output by one `torch.zeros(tokens, heads, v_head_dim, …)`, and has no other use for the name `torch`.
So its own code is run with that name bound to something whose `zeros` is `torch.empty`: exact, the same in every thread, and
for less than a microsecond. A function mode around the call did the same, at tens of microseconds for every tensor it passed.
"""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.rebound import rebound
from attnfix.patches.vllm.shared import empty_rows


def runs_by_itself(target: Any, instance: Any) -> bool:
    """Whether no other fix's correction runs between this one and the engine's function."""
    return target.engine_function is not None


def run_prefill_context_chunk(call: Call, instance: Any, prefill: Any, chunk_idx: int) -> Any:
    """Rows that the kernel does not write would be undefined: they are neutralised."""
    result = call.run(unfilled(call.target.function))
    if empty_rows.some_in(prefill.chunked_context, chunk_idx):
        empty_rows.neutralize(result, prefill, chunk_idx)
    call.corrected()
    return result


@cache
def unfilled(function: FunctionType) -> FunctionType:
    """`function` with `torch.zeros` read as `torch.empty`; all other globals are its own, as they are when it runs."""
    import torch

    class Torch:
        zeros = property(lambda self: torch.empty)  # itself: the engine calls it, and its error is the engine's

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    return rebound(function, torch=Torch())
