"""Rows of vllm.image-split for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.25.1", "PaliGemma", "h100", VLLM, HIT, "model_type paligemma"),
    ("0.14.0", "PaliGemma", "h100", VLLM, HIT, "model_type paligemma"),
    ("0.13.0", "PaliGemma", "h100", VLLM, NOT_HIT, "model_type paligemma"),
    ("0.25.1", "Gemma4-VL", "h100", VLLM, HIT, "model_type gemma4"),
    ("0.19.1", "Gemma4-VL", "h100", VLLM, NOT_HIT, "model_type gemma4"),
    ("0.25.1", "PaliGemma", "h100", VLLM + "--language-model-only", POSSIBLE, "--language-model-only"),
    ("0.25.1", "Llama", "h100", VLLM, NOT_HIT, "model_type llama"),
    ("0.25.1", None, "h100", VLLM, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"images attended both ways": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its prompts have no images"
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = (
    "fewer tokens go in, as in a step with less room; who is offered how many, and what the encoder keeps, are witnesses"
)
