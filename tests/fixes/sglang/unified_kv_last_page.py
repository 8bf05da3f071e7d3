"""Rows of sglang.unified-kv-last-page for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

_UNIFIED = "SGLANG_HACK_FLASHMLA_BACKEND=unified_kv_triton "

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.14", "V4", "mi300x", _UNIFIED + SGL, HIT, "DeepseekV4ForCausalLM"),
    ("0.5.15", "V4", "mi300x", _UNIFIED + SGL + "--tp 8", HIT, "AMD"),
    ("0.5.15", "V4", "h100", _UNIFIED + SGL, NOT_HIT, "NVIDIA"),
    ("0.5.15", "V3.2", "mi300x", _UNIFIED + SGL, NOT_HIT, "DeepseekV32ForCausalLM"),
    ("0.5.15", "V4", "mi300x", SGL, NOT_HIT, "no SGLANG_HACK_FLASHMLA_BACKEND"),
    ("0.5.15", "V4", "mi300x", "SGLANG_HACK_FLASHMLA_BACKEND=tilelang " + SGL, NOT_HIT, "tilelang"),
    ("0.5.15", "V4", "mi300x", _UNIFIED + SGL + "--enable-hierarchical-cache", NOT_HIT, "--enable-hierarchical-cache"),
    ("0.5.15", "V4", "mi300x", None, POSSIBLE, "needs the launch command"),
    ("0.5.15", None, "mi300x", _UNIFIED + SGL, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"GPU": (("AMD",), "NVIDIA"), "architecture": (("DeepseekV4ForCausalLM",), "DeepseekV32ForCausalLM"),
     "KV of a layer in one buffer": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its servers have no AMD GPU"
RUN_AS_IT_IS = "a pool is made as it is made, with one page more"
