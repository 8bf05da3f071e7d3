"""What the proofs of the two fixes of a merge of two empty parts share: MLA prefill with fresh prompts among long contexts.

Only tokens of requests without context are judged: where such a request comes before one with context, 0.20.0-0.27.1 lose
context in their final merge, which is another bug. Once with the LSE that FlashAttention 3 gives a row without keys, once
with that of 2. What is real and what is emulated stands in `patches/lab/vllm/mla_prefill.py`.
"""

from __future__ import annotations

import math
from typing import Any

from attnfix.patches.lab.proof import Observation, combine, fixup_sabotages, observe
from attnfix.patches.lab.vllm.mla_prefill import Batch, MlaPrefill

_FRESH = Batch((40, 0, 35, 0), (2, 3, 2, 3), decodes=1)  # three chunks
# Context for everyone: chunks are merged, and none is empty. Two of them: the interpreter cuts bfloat16 off at each merge.
_ALL = Batch((30, 25, 29, 32), (3, 2, 4, 5))


class BothEmpty(MlaPrefill):
    """A proof about the merge: `prepare` says by which kernel."""

    def scenario(self, seed: int) -> Observation:
        return combine(*(self._run(seed, _FRESH, _FRESH.without_context, lse) for lse in (-math.inf, math.inf)))

    def control(self, seed: int) -> Observation:
        return combine(*(self._run(seed, _ALL, slice(None), lse) for lse in (-math.inf, math.inf)))

    def _run(self, seed: int, batch: Batch, tokens: Any, empty_lse: float) -> Observation:
        self.use_flash(empty_lse)
        results = (self.outputs(seed, batch, backend="fa", ranks=(size,)) for size in (1, 2))
        return combine(*(observe(out[tokens], reference[tokens]) for out, reference in results))

    def sabotages(self) -> dict[str, Any]:
        return fixup_sabotages()
