"""Proof of vllm.skip-context-zero-fill: zero fills counted, in memory that is never zero by chance.

What is real and what is emulated stands in `patches/vllm/mla_prefill.py`. Every batch runs twice: all memory that torch hands
out uninitialised is NaN in the one run and finite values in the other. Both must give equal bits, and the right result.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import Any

from attnfix.patches import emulators
from attnfix.patches.scenario import NoSuchPath, Observation, code_of, fixup_sabotages, observe, replaced
from attnfix.patches.vllm import mla_prefill
from attnfix.patches.vllm.mla_prefill import HEADS, VDIM, Batch

MODULES = MAY_LACK = mla_prefill.MODULES
KERNEL = "emulated"
MEASURE = "needless zero fills of the output per context chunk"

_METHOD = "_run_prefill_context_chunk_trtllm_ragged"
_UNEQUAL = Batch((70, 1, 20, 0), (3, 2, 4, 5), decodes=1)  # in every chunk some request has no context
_FRESH = Batch((0, 0, 0, 0), (3, 2, 4, 5))  # no context, no chunk


def prepare(modules: dict[str, Any]) -> None:
    mla_prefill.prepare(modules)
    method = getattr(mla_prefill.engine().MLACommonImpl, _METHOD, None)
    if method is None or "zeros" not in code_of(method).co_names:
        raise NoSuchPath("the output of a context chunk is not zero-filled")


def scenario(seed: int) -> Observation:
    return _run(seed, _UNEQUAL)


def control(seed: int) -> Observation:
    return _run(seed, _FRESH)


def _run(seed: int, batch: Batch) -> Observation:
    import torch

    seen = []
    for undefined in (math.nan, emulators.stale((1,), torch.float32, 1, 20).item()):
        kernel = mla_prefill.use()
        with mla_prefill.uninitialised(undefined), zero_fills() as fills:
            out, reference = mla_prefill.outputs(seed, batch)
        seen.append(observe(out, reference))
    chunks = kernel.calls - 2  # the new tokens are attended to once on one rank and once on two
    needless = fills.count((sum(batch.new), HEADS, VDIM))
    right = seen[0].error < 0.01 and seen[0].bits == seen[1].bits
    return Observation(needless / max(chunks, 1) if right else math.inf, seen[0].bits)


@contextmanager
def zero_fills() -> Any:
    """A list of the shapes that torch fills with zeros inside."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    ops, shapes = torch.ops.aten, []

    class Fills(TorchDispatchMode):
        def __torch_dispatch__(self, op: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            result = op(*args, **(kwargs or {}))
            if op in (ops.zeros.default, ops.zero_.default) or (op is ops.fill_.Scalar and args[1] == 0):
                shapes.append(tuple(result.shape))
            return result

    with Fills():
        yield shapes


def sabotages() -> dict[str, Any]:
    from . import wrap

    return {**fixup_sabotages(), "the output is still filled": replaced(wrap, "unfilled", lambda function: function)}
