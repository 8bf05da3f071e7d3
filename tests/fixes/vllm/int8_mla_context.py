"""Rows of vllm.int8-mla-context for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM
from tests.support.ways import MLA, PREFIX

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.33.0", "W8A8", "h100", VLLM, HIT, "weight of kv_b_proj: int8 (compressed-tensors, int-quant"),
    ("0.33.0", "W8A8-left", "h100", VLLM, NOT_HIT, "others (compressed-tensors, as it is)"),
    ("0.33.0", "K2", "h200", VLLM, NOT_HIT, "others (compressed-tensors, as it is)"),
    ("0.33.0", "INT4", "h100", VLLM, NOT_HIT, "pack-quantized"),
    ("0.33.0", "R1", "h100", VLLM, NOT_HIT, "others (quantization fp8)"),
    ("0.33.0", "V2", "h100", VLLM, NOT_HIT, "no quantization_config, no --quantization"),
    ("0.33.0", "V2", "h100", VLLM + "-q bitsandbytes", NOT_HIT, "bitsandbytes"),
    ("0.33.0", "W8A8", "h100", VLLM + "--no-enable-prefix-caching --no-enable-chunked-prefill", NOT_HIT, "cached prefix: off"),
    ("0.33.0", None, "h100", VLLM, POSSIBLE, "needs the model's config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": MLA, "cached prefix": PREFIX, "weight of kv_b_proj": (("int8",), "others")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "weights that are packed are not in the space"
