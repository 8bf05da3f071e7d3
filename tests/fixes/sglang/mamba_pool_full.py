"""Rows of sglang.mamba-pool-full for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.3.post2", "Next", "h100", SGL, HIT, "Qwen3NextForCausalLM"),
    ("0.5.3.post3", "Next", "mi300x", SGL + "--tp-size 2", HIT, "Qwen3NextForCausalLM"),
    ("0.5.3.post2", "Next", "h100", SGL + "--disable-radix-cache", NOT_HIT, "disable-radix-cache"),
    ("0.5.3.post2", "Next", "h100", SGL + "--disaggregation-mode decode", NOT_HIT, "--disaggregation-mode"),
    ("0.5.3.post2", "Llama", "h100", SGL, NOT_HIT, "LlamaForCausalLM"),
    ("0.5.3.post2", None, "h100", SGL, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"architecture": (("Qwen3NextForCausalLM",), "LlamaForCausalLM"), "decode beside kept states": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its prompts do not fill the pool of states"
RUN_AS_IT_IS = "the engine prepares a batch as it does, for which states were evicted before"
