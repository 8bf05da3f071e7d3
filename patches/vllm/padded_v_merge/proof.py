"""Proof of vllm.padded-v-merge: contexts of several chunks, through FlashAttention 2, which pads the values.

Once with the engine's own Triton kernel, in the interpreter, and once with the CUDA op as its source reads. What else is real
and what is emulated stands in `patches/lab/vllm/mla_prefill.py`.
"""

from __future__ import annotations

import math
from typing import Any

from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import Observation, combine, observe, replaced
from attnfix.patches.lab.vllm.mla_prefill import Batch, MlaPrefill

# Two chunks and three. Every request has context in all of them: what is merged of an empty one is the matter of other bugs
_TWO, _THREE = Batch((30, 25, 29, 32), (3, 2, 4, 5)), Batch((40, 45), (3, 2), decodes=1)
_ONE = Batch((14, 9, 16), (3, 2, 4))


class Proof(MlaPrefill):
    pads = True
    around = {"Keep `--attention-config.flash_attn_version` unset on Hopper": {"pads": False}}

    def prepare(self) -> None:
        import torch

        self.prepare_flash()
        ops: Any = torch.ops._C
        ops.merge_attn_states = emulators.MergeAttnStates(one_stride=True)

    def scenario(self, seed: int) -> Observation:
        return self._run(seed, (_TWO, _THREE), self.pads)

    def control(self, seed: int) -> Observation:
        """A single chunk: both parts are cut from padded outputs. And FlashAttention 3, which pads nothing."""
        return combine(self._run(seed, (_ONE,), pads=True), self._run(seed, (_TWO, _THREE), pads=False))

    def _run(self, seed: int, batches: tuple[Batch, ...], pads: bool) -> Observation:
        self.use_flash(math.inf if pads else -math.inf, pads)
        self.merge_on(cuda=True)
        seen = [observe(*self.outputs(seed, batch, backend="fa")) for batch in batches]
        self.merge_on(cuda=False)  # of two chunks at most: the interpreter cuts bfloat16 off at each merge
        return combine(*seen, observe(*self.outputs(seed, batches[0], backend="fa")))

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        def one_row_missed(part: Any) -> Any:
            copy = part.contiguous()
            if copy is not part:
                copy[-1] = 0
            return copy

        return {
            "the correction does nothing": replaced(wrap, "packed", lambda part: part),
            "heads come in another order": replaced(wrap, "packed", lambda part: part.flip(1).contiguous()),
            "one token is not copied": replaced(wrap, "packed", one_row_missed),
        }
