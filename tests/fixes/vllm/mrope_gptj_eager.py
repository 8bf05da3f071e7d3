"""Rows of vllm.mrope-gptj-eager for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

_EAGER = VLLM + "--enforce-eager "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.26.0", "GLM-4.1V", "h100", _EAGER, HIT, "--enforce-eager"),
    ("0.10.1", "GLM-4.1V", "h100", VLLM, HIT, "up to 0.10.1"),
    ("0.15.1", "GLM-4.1V", "mi300x", VLLM + "-cc.mode=NONE", HIT, "--compilation-config.mode NONE"),
    ("0.20.0", "GLM-4.1V", "h100", VLLM + """-cc '{"custom_ops": ["+rotary_embedding"]}'""", HIT, "+rotary_embedding"),
    ("0.20.0", "GLM-4.1V", "h100", VLLM + "--optimization-level 0", HIT, "--optimization-level 0"),
    ("0.26.0", "GLM-4.1V", "h100", _EAGER + """-cc '{"custom_ops": ["none"]}'""", NOT_HIT, "none"),
    ("0.26.0", "GLM-4.1V", "h100", VLLM, NOT_HIT, "no --enforce-eager"),
    ("0.26.0", "Qwen-VL", "h100", _EAGER, NOT_HIT, "architecture"),
    ("0.26.0", "GLM-4.1V", "h100", VLLM + "-cc.backend=eager", POSSIBLE, "--compilation-config.backend"),
    ("0.26.0", None, "h100", _EAGER, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "architecture": (
            ("Glm4vForConditionalGeneration", "GlmOcrForConditionalGeneration"), "Qwen2_5_VLForConditionalGeneration",
        ),
        "rotation by M-RoPE": (("kernel",), "torch"),
    }
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "a rotary embedding, which lies before attention"
RUN_AS_IT_IS = "an embedding and the config's hash are made as they are made; what the embedding runs then are witnesses"
