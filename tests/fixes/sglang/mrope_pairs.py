"""Rows of sglang.mrope-pairs for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.4", "GLM-4.1V", "h100", SGL, HIT, "Glm4vForConditionalGeneration"),
    ("0.5.4.post1", "GLM-4.1V", "b200", SGL + "--attention-backend triton", HIT, "NVIDIA"),
    ("0.5.4", "GLM-4.1V", "mi300x", SGL, NOT_HIT, "AMD"),
    ("0.5.4", "Qwen-VL", "h100", SGL, NOT_HIT, "Qwen2_5_VLForConditionalGeneration"),
    ("0.5.4", "GLM-4.1V", None, SGL, POSSIBLE, "GPU"),
    ("0.5.4", None, "h100", SGL, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "architecture": (("Glm4vForConditionalGeneration",), "Qwen2_5_VLForConditionalGeneration"),
        "GPU": (("NVIDIA",), "AMD"),
    },
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "a rotary embedding, which lies before attention"
RUN_AS_IT_IS = "it makes a layer as it is made; what the layer runs from then on are witnesses"
