"""Rows of vllm.skip-context-zero-fill for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import VLLM
from tests.support.ways import RAGGED_PREFILL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.16.0", "R1", "b200", VLLM, HIT, "trtllm_ragged"),
    ("0.18.0", "R1", "b200", VLLM, NOT_HIT, "flash_attn"),
    ("0.13.0", "R1", "b200", "VLLM_USE_TRTLLM_RAGGED_DEEPSEEK_PREFILL=1 " + VLLM, HIT, "trtllm"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    RAGGED_PREFILL,
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "unfilled.Torch.<lambda>": "names torch.empty",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "it is about time, and changes no result"
