"""Proof of vllm.skip-context-zero-fill: zero fills counted, in memory that is never zero by chance.

What is real and what is emulated stands in `patches/lab/vllm/mla_prefill.py`. Every batch runs twice: all memory that
torch hands out uninitialised is NaN in the one run and finite values in the other. Both must give equal bits, and the right
result.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import Any

from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import NoSuchPath, Observation, code_of, fixup_sabotages, observe, replaced
from attnfix.patches.lab.vllm.mla_prefill import HEADS, VDIM, Batch, MlaPrefill, uninitialised

_METHOD = "_run_prefill_context_chunk_trtllm_ragged"
_UNEQUAL = Batch((70, 1, 20, 0), (3, 2, 4, 5), decodes=1)  # in every chunk some request has no context
_FRESH = Batch((0, 0, 0, 0), (3, 2, 4, 5))  # no context, no chunk


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


class Proof(MlaPrefill):
    measure = "needless zero fills of the output per context chunk"

    def prepare(self) -> None:
        super().prepare()
        method = getattr(self.mla.MLACommonImpl, _METHOD, None)
        if method is None or "zeros" not in code_of(method).co_names:
            raise NoSuchPath("the output of a context chunk is not zero-filled")

    def scenario(self, seed: int) -> Observation:
        return self._run(seed, _UNEQUAL)

    def control(self, seed: int) -> Observation:
        return self._run(seed, _FRESH)

    def _run(self, seed: int, batch: Batch) -> Observation:
        import torch

        seen = []
        for undefined in (math.nan, emulators.stale((1,), torch.float32, 1, 20).item()):
            kernel = self.use()
            with uninitialised(undefined), zero_fills() as fills:
                out, reference = self.outputs(seed, batch)
            seen.append(observe(out, reference))
        chunks = kernel.calls - 2  # the new tokens are attended to once on one rank and once on two
        needless = fills.count((sum(batch.new), HEADS, VDIM))
        right = seen[0].error < 0.01 and seen[0].bits == seen[1].bits
        return Observation(needless / max(chunks, 1) if right else math.inf, seen[0].bits)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        return {**fixup_sabotages(), "the output is still filled": replaced(wrap, "unfilled", lambda function: function)}
