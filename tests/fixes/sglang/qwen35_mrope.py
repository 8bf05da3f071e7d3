"""Rows of sglang.qwen35-mrope for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.15", "3.5", "h100", SGL, HIT, "Qwen3_5ForConditionalGeneration"),
    ("0.5.18", "3.5", "b200", SGL + "--attention-backend triton --disable-cuda-graph", HIT, "Qwen3_5ForConditionalGeneration"),
    ("0.5.18", "3.5", "h100", SGL + "--language-model-only", NOT_HIT, "--language-model-only"),
    ("0.5.16", "3.5", "mi300x", SGL, NOT_HIT, "AMD"),
    ("0.5.17", "Next", "h100", SGL, NOT_HIT, "Qwen3NextForCausalLM"),
    ("0.5.17", "3.5", None, SGL, POSSIBLE, "GPU"),
    ("0.5.17", None, "h100", SGL, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"GPU": (("NVIDIA",), "AMD"), "images in Qwen3.5's attention": (("on",), "off")}]
#: Place in wrap.py -> why it needs no guard
UNGUARDED = {"self_attention.corrected": "the engine's function, with what a guarded one prepared"}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its images are for a model without M-RoPE"
RUN_AS_IT_IS = "it makes a layer as it is made; what the layer runs from then on are witnesses"
