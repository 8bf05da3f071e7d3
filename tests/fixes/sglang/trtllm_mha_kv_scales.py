"""Rows of sglang.trtllm-mha-kv-scales for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "FP8-KV", "b200", SGL + "--kv-cache-dtype fp8_e4m3", HIT, "trtllm_mha (default"),
    ("0.5.9", "FP8-KV", "b200", SGL + "--kv-cache-dtype bf16", HIT, "unused (--kv-cache-dtype"),
    ("0.5.9", "FP8-KV", "b200", SGL, POSSIBLE, "auto may follow"),
    ("0.5.9", "FP8-KV", "h200", SGL + "--kv-cache-dtype fp8_e4m3", NOT_HIT, "fa3"),
    ("0.5.9", "Llama", "b200", SGL + "--kv-cache-dtype fp8_e4m3", NOT_HIT, "has no scheme"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": (("MHA",), "MLA"), "prefill backend": (("trtllm_mha",), "fa3"),
     "KV cache scales": (("calibrated FP8", "unused"), "none")},
    {"attention": (("MHA",), "MLA"), "decode backend": (("trtllm_mha",), "fa3"),
     "KV cache scales": (("calibrated FP8", "unused"), "none")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention-backend": "trtllm_mha", "kv-cache-dtype": "fp8_e4m3", "scales": "checkpoint"}
