"""What the proofs of the two fixes of a merge of two empty parts share: MLA prefill with fresh prompts among long contexts.

Only tokens of requests without context are judged: where such a request comes before one with context, 0.20.0-0.27.1 lose
context in their final merge, which is another bug. Once with the LSE that FlashAttention 3 gives a row without keys, once
with that of 2. What is real and what is emulated stands in `patches/vllm/mla_prefill.py`.
"""

from __future__ import annotations

import math
from typing import Any

from attnfix.patches.scenario import Observation, combine, fixup_sabotages, observe
from attnfix.patches.vllm import mla_prefill
from attnfix.patches.vllm.mla_prefill import Batch

__all__ = ["MODULES", "control", "fixup_sabotages", "scenario"]
MODULES = mla_prefill.MODULES

_FRESH = Batch((40, 0, 35, 0), (2, 3, 2, 3), decodes=1)  # three chunks
# Context for everyone: chunks are merged, and none is empty. Two of them: the interpreter cuts bfloat16 off at each merge.
_ALL = Batch((30, 25, 29, 32), (3, 2, 4, 5))


def scenario(seed: int) -> Observation:
    return combine(*(_run(seed, _FRESH, _FRESH.without_context, lse) for lse in (-math.inf, math.inf)))


def control(seed: int) -> Observation:
    return combine(*(_run(seed, _ALL, slice(None), lse) for lse in (-math.inf, math.inf)))


def _run(seed: int, batch: Batch, tokens: Any, empty_lse: float) -> Observation:
    mla_prefill.use_flash(empty_lse)
    results = (mla_prefill.outputs(seed, batch, backend="fa", ranks=(size,)) for size in (1, 2))
    return combine(*(observe(out[tokens], reference[tokens]) for out, reference in results))
