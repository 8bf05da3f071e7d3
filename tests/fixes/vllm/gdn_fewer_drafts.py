"""Rows of vllm.gdn-fewer-drafts for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import MTP, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.10.2", "Next", "h100", MTP, HIT, "draft tokens of a step: several"),
    ("0.10.2", "Next", "h100", MTP + "--enforce-eager", HIT, "speculative decoding: on (--speculative-config)"),
    ("0.10.2", "Next", "h100", VLLM + "-sc.num_speculative_tokens=1", NOT_HIT, "draft tokens of a step: one"),
    ("0.10.2", "Next", "h100", VLLM, NOT_HIT, "speculative decoding: off"),
    ("0.10.2", "Llama", "h100", MTP, NOT_HIT, "LlamaForCausalLM"),
    ("0.10.2", None, "h100", MTP, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "architecture": (("Qwen3NextForCausalLM",), "LlamaForCausalLM"),
        "speculative decoding": (("on",), "off"),
        "draft tokens of a step": (("several",), "one"),
    }
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no model with Gated DeltaNet is in the space"
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "builder and layer compute the step as they are, and one kernel runs for each length of its requests"
