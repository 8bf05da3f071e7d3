"""Rows of vllm.mla-context-order for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM
from tests.support.ways import MLA, PREFIX

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.25.1", "V2", "h100", VLLM, HIT, "default of vLLM 0.25.1 for DeepseekV2ForCausalLM"),
    ("0.25.1", "V2", "h100", "VLLM_USE_V2_MODEL_RUNNER=0 " + VLLM, NOT_HIT, "model runner: V1"),
    ("0.25.1", "R1", "h100", VLLM, NOT_HIT, "model runner: V1"),
    ("0.25.1", "R1", "h100", "VLLM_USE_V2_MODEL_RUNNER=1 " + VLLM, HIT, "model runner: V2"),
    ("0.20.0", "V2", "h100", VLLM, NOT_HIT, "model runner: V1"),
    ("0.25.1", "V2", "h100", VLLM + "--made-up", POSSIBLE, "unless --made-up needs V1"),
    ("0.25.1", "V2", "h100", None, POSSIBLE, "needs the launch command"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": MLA, "cached prefix": PREFIX, "model runner": (("V2",), "V1")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention": "MLA", "attention-backend": "FLASHMLA", "block-size": 64}
