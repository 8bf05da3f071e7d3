"""Rows of vllm.llama4-vision-rotary for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.11.0", "Llama4", "h100", VLLM, HIT, "Llama4ForConditionalGeneration"),
    ("0.11.0", "Llama4", "mi300x", VLLM + "-tp 8 --enforce-eager", HIT, "Llama4ForConditionalGeneration"),
    ("0.11.0", "Llama", "h100", VLLM, NOT_HIT, "LlamaForCausalLM"),
    ("0.11.0", None, "h100", VLLM, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"architecture": (("Llama4ForConditionalGeneration",), "LlamaForCausalLM")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its models have no vision tower"
