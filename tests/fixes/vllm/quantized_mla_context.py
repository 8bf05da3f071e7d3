"""Rows of vllm.quantized-mla-context for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM
from tests.support.ways import MLA, PREFIX

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.25.1", "AWQ", "h100", VLLM, HIT, "kv_b_proj: packed (quantization awq)"),
    ("0.25.1", "INT4", "h100", VLLM, HIT, "kv_b_proj: packed"),
    ("0.25.1", "W8A8", "h100", VLLM, HIT, "int-quantized"),
    ("0.25.1", "AWQ-left", "h100", VLLM, NOT_HIT, "which leaves out kv_b_proj"),
    ("0.25.1", "K2", "h200", VLLM, NOT_HIT, "leaves kv_b_proj of every layer out"),
    ("0.25.1", "K2.5", "h200", VLLM, NOT_HIT, "leaves kv_b_proj of every layer out"),
    ("0.25.1", "Experts", "h200", VLLM, NOT_HIT, "leaves kv_b_proj of every layer out"),
    ("0.25.1", "INT4-some", "h200", VLLM, HIT, "packed (compressed-tensors: as it is and pack-quantized)"),
    ("0.25.1", "INT4-endless", "h200", VLLM, POSSIBLE, "the pattern (a+)+$ is not read"),
    ("0.25.1", "NVFP4", "b200", VLLM, NOT_HIT, "modelopt, which leaves kv_b_proj of every layer out"),
    ("0.25.1", "NVFP4-some", "b200", VLLM, POSSIBLE, "modelopt keeps kv_b_proj was not read"),
    ("0.25.1", "R1", "a100", VLLM, HIT, "by Marlin on a100"),
    ("0.25.1", "R1", "h100", VLLM, NOT_HIT, "kv_b_proj: floats"),
    ("0.25.1", "V2", "h100", VLLM, NOT_HIT, "no quantization_config"),
    ("0.25.1", "V2", "h100", VLLM + "-q bitsandbytes", POSSIBLE, "was not read"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": MLA, "cached prefix": PREFIX, "kv_b_proj": (("packed",), "floats")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "weights that are packed are not in the space"
