"""Proof of vllm.empty-context-chunks: MLA prefill of four requests with unequal cached lengths, on one rank and on two.

What is real and what is emulated stands in `patches/vllm/mla_prefill.py`.
"""

from __future__ import annotations

from attnfix.patches.scenario import Observation, fixup_sabotages, observe
from attnfix.patches.vllm import mla_prefill
from attnfix.patches.vllm.mla_prefill import Batch

MODULES = MAY_LACK = mla_prefill.MODULES
KERNEL = "emulated"
prepare = mla_prefill.prepare
sabotages = fixup_sabotages

_NEW = (3, 2, 4, 5)
# Those with context come first, as the engine's own runner orders a batch. The second ends in the first chunk, the third in
# the next, one has no context at all. A single token of context also leaves the second rank without any.
_UNEQUAL = Batch((70, 1, 20, 0), _NEW)
_EQUAL = Batch((70, 65, 79, 80), _NEW)  # five chunks for everyone: the bug is not touched


def scenario(seed: int) -> Observation:
    return observe(*mla_prefill.outputs(seed, _UNEQUAL))


def control(seed: int) -> Observation:
    return observe(*mla_prefill.outputs(seed, _EQUAL))
