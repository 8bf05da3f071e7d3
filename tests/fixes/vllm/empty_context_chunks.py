"""Rows of vllm.empty-context-chunks for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import RAGGED, VLLM
from tests.support.ways import RAGGED_PREFILL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.25.1", "R1", "h200", VLLM + "-ac.mla_prefill_backend=TRTLLM_RAGGED", NOT_HIT, "no server"),
    ("0.20.0", "R1", "b200", RAGGED, HIT, "MLA prefill backend: trtllm_ragged"),
    ("0.20.0", "R1", "b200", RAGGED, HIT, "cached prefix: on (prefix-caching, on by default)"),
    ("0.20.0", "R1", "b200", RAGGED + " --config a.yaml", POSSIBLE, "a.yaml, which is not read"),
    ("0.20.0", "R1", "b200", VLLM, NOT_HIT, "MLA prefill backend: flash_attn"),
    ("0.20.0", "R1", "h200", RAGGED, NOT_HIT, "flash_attn"),
    ("0.20.0", "R1", "h200", None, NOT_HIT, "flash_attn"),
    ("0.20.0", "R1", "b200", None, POSSIBLE, "needs the launch command"),
    ("0.25.1", "R1", "b200", VLLM, NOT_HIT, "default of vLLM 0.25.1"),
    ("0.25.1", "R1", "b200", VLLM + "-ac.mla_prefill_backend=TRTLLM_RAGGED", HIT, "trtllm_ragged"),
    ("0.25.1", "R1", "b200",
     VLLM + "-ac.mla_prefill_backend=TRTLLM_RAGGED --no-enable-prefix-caching --no-enable-chunked-prefill", NOT_HIT, "off"),
    ("0.20.0", "R1", "b200", "VLLM_MLA_DISABLE=1 " + RAGGED, NOT_HIT, "VLLM_MLA_DISABLE"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    RAGGED_PREFILL,
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "TRT-LLM's ragged prefill is not in the space"
