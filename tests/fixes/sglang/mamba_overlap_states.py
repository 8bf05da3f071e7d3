"""Rows of sglang.mamba-overlap-states for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.5", "Next", "h100", SGL, HIT, "sglang 0.5.5"),
    ("0.5.3.post2", "Next", "mi300x", SGL + "--tp-size 2", HIT, "Qwen3NextForCausalLM"),
    ("0.5.5", "Next", "h100", SGL + "--disaggregation-mode prefill", HIT, "radix cache keeps them"),
    ("0.5.5", None, "h100", SGL, POSSIBLE, "config.json"),
    ("0.5.5", "Next", "h100", SGL + "--disaggregation-mode decode", NOT_HIT, "--disaggregation-mode"),
    ("0.5.5", "Next", "h100", SGL + "--disable-radix-cache", NOT_HIT, "disable-radix-cache"),
    ("0.5.5", "Next", "h100", SGL + "--disable-overlap-schedule", NOT_HIT, "disable-overlap-schedule"),
    ("0.5.5", "Next", "h100", SGL + "--pp-size 2", NOT_HIT, "pp-size 2"),
    ("0.5.5.post2", "Next", "h100", SGL, NOT_HIT, "sglang 0.5.5.post2"),
    ("0.5.5", "Llama", "h100", SGL, NOT_HIT, "LlamaForCausalLM"),
]  # fmt: skip
_ALL = {
    "kept recurrent states": (("on",), "off"), "steps overlap": (("on",), "off"),
    "speculative decoding": (("off",), "on"),
}  # fmt: skip
_JET = ("JetNemotronForCausalLM", "JetVLMForConditionalGeneration")
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {**_ALL, "architecture": (("Qwen3NextForCausalLM",), "LlamaForCausalLM"), "Qwen3-Next overlaps": (("on",), "off")},
    {**_ALL, "architecture": (_JET, "LlamaForCausalLM")},
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its requests run one after the other, and none begins with a cached state while another step runs"
RUN_AS_IT_IS = "the engine settles its arguments as it does, and one of them is set then"
