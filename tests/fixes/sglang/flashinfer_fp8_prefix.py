"""Rows of sglang.flashinfer-fp8-prefix for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL
from tests.support.ways import PREFIX

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "FP8-KV", "a100", SGL + "--kv-cache-dtype fp8_e4m3", HIT, "kv_cache_scheme of"),
    ("0.5.9", "FP8-KV", "a100", SGL, POSSIBLE, "auto may follow"),
    ("0.5.9", "FP8-KV", "a100", SGL + "--kv-cache-dtype bf16", NOT_HIT, "--kv-cache-dtype"),
    ("0.5.9", "Llama", "a100", SGL + "--kv-cache-dtype fp8_e4m3", NOT_HIT, "has no scheme"),
    ("0.5.9", "FP8-KV", "h200", SGL + "--kv-cache-dtype fp8_e4m3", NOT_HIT, "fa3"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": (("MHA",), "MLA"), "prefill backend": (("flashinfer",), "fa3"),
     "cached prefix": PREFIX, "KV cache scales": (("calibrated FP8",), "none")},
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "with_scales.forward_return_lse": "forward_extend guards it",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention-backend": "flashinfer", "kv-cache-dtype": "fp8_e4m3", "scales": "checkpoint"}
