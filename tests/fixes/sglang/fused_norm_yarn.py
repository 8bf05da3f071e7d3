"""Rows of sglang.fused-norm-yarn for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

_ON = SGL + "--enable-fused-qk-norm-rope "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.6.post1", "Qwen3-MoE-YaRN", "h100", _ON, HIT, "YaRN's factor in config.json"),
    ("0.5.23", "Qwen3-MoE-YaRN", "b200", _ON, HIT, "--enable-fused-qk-norm-rope"),
    ("0.5.23", "Qwen3-MoE-YaRN", "h100", SGL, NOT_HIT, "--enable-fused-qk-norm-rope"),
    ("0.5.23", "Qwen3-MoE", "h100", _ON, NOT_HIT, "no YaRN of another factor"),
    ("0.5.9", "Qwen3-MoE-YaRN", "mi300x", _ON, NOT_HIT, "AMD"),
    ("0.5.9", "Llama", "h100", _ON, NOT_HIT, "LlamaForCausalLM"),
    ("0.5.9", "Qwen3-MoE", "h100", _ON + "--json-model-override-args {}", POSSIBLE, "--json-model-override-args"),
    ("0.5.9", None, "h100", _ON, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"GPU": (("NVIDIA",), "AMD"), "YaRN of another factor in the fused kernel": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "a layer's constructor, and none of its models is Qwen3 MoE"
RUN_AS_IT_IS = "it makes a layer as it is made; what the layer runs from then on are witnesses"
