"""Rows of vllm.bailing-mla-rotary for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.20.0", "Ling-2.6", "h100", VLLM, HIT, "partial_rotary_factor 0.5"),
    ("0.17.0", "Ling-2.6", None, VLLM, HIT, "partial_rotary_factor 0.5"),
    ("0.20.0", "Ring", "h100", VLLM, NOT_HIT, "partial_rotary_factor 1"),
    ("0.20.0", "V2", "h100", VLLM, NOT_HIT, "architecture"),
    ("0.20.0", None, "h100", VLLM, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "architecture": (("BailingMoeV2_5ForCausalLM",), "DeepseekV2ForCausalLM"),
        "rotary factor of linear attention": (("on",), "off"),
    }
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no Ling is in the space"
RUN_AS_IT_IS = "a layer is made by the engine's constructor, from settings of RoPE with another factor; so is the config's hash"
