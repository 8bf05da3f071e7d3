"""Rows of vllm.gdn-draft-gates for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import MTP, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.18.0", "Next", "h100", MTP, HIT, "speculative decoding: on (--speculative-config)"),
    ("0.27.1", "3.5", "h200", MTP, HIT, "Qwen3_5ForConditionalGeneration"),
    ("0.27.1", "3.5", "mi300x", MTP + "--enforce-eager", HIT, "speculative decoding: on"),
    ("0.27.1", "3.5", "h200", VLLM, NOT_HIT, "speculative decoding: off"),
    ("0.27.1", "Llama", "h100", MTP, NOT_HIT, "LlamaForCausalLM"),
    ("0.27.1", None, "h100", MTP, POSSIBLE, "config.json"),
]
_NEXT, _SMALL = ("Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"), (
    "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM", "InternS2PreviewForConditionalGeneration",
)  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"architecture": (names, "LlamaForCausalLM"), "speculative decoding": (("on",), "off")}
    for names in (_NEXT, _SMALL, ("MiniCPMV4_6ForConditionalGeneration",))
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no model with Gated DeltaNet is in the space"
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "builder and layer compute the step as they are, and one kernel gets the gates of its tokens"
