"""Proof of vllm.empty-context-chunks: MLA prefill of four requests with unequal cached lengths, on one rank and on two.

What is real and what is emulated stands in `patches/lab/vllm/mla_prefill.py`.
"""

from __future__ import annotations

from typing import Any

from attnfix.patches.lab.proof import Observation, fixup_sabotages, observe
from attnfix.patches.lab.vllm.mla_prefill import Batch, MlaPrefill

_NEW = (3, 2, 4, 5)
# Those with context come first, as the engine's own runner orders a batch. The second ends in the first chunk, the third in
# the next, one has no context at all. A single token of context also leaves the second rank without any.
_UNEQUAL = Batch((70, 1, 20, 0), _NEW)
_EQUAL = Batch((70, 65, 79, 80), _NEW)  # five chunks for everyone: the bug is not touched


class Proof(MlaPrefill):
    backend = "trtllm_ragged"
    around = {"`--attention-config.mla_prefill_backend FLASH_ATTN`": {"backend": "fa"}}

    def prepare(self) -> None:
        super().prepare()
        if self.backend == "fa":
            self.prepare_flash()

    def scenario(self, seed: int) -> Observation:
        return observe(*self.outputs(seed, _UNEQUAL, self.backend))

    def control(self, seed: int) -> Observation:
        return observe(*self.outputs(seed, _EQUAL))

    def sabotages(self) -> dict[str, Any]:
        return fixup_sabotages()
