"""Rows of sglang.trtllm-mla-bf16-scale for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.8", "R1-KV", "b200", SGL + "--kv-cache-dtype bf16", HIT, "unused (--kv-cache-d"),
    ("0.5.8", "R1-KV", "b200", SGL + "--kv-cache-dtype fp8_e4m3", NOT_HIT, "calibrated"),
    ("0.5.8", "R1-KV", "b200", SGL, POSSIBLE, "auto may follow"),
    ("0.5.8", "R1-KV", "h200", SGL + "--kv-cache-dtype bf16", NOT_HIT, "fa3"),
    ("0.5.8", "R1", "b200", SGL + "--kv-cache-dtype bf16", NOT_HIT, "has no scheme"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"decode backend": (("trtllm_mla",), "fa3"), "KV cache scales": (("unused",), "none")},
    {"verify backend": (("trtllm_mla",), "fa3"), "KV cache scales": (("unused",), "calibrated FP8")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "checkpoints with scales are made for Llama alone"
