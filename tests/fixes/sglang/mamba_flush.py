"""Rows of sglang.mamba-flush for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.5.post2", "Next", "h100", SGL, HIT, "Qwen3NextForCausalLM"),
    ("0.5.5.post2", "Next", "h100", SGL + "--disaggregation-mode prefill", HIT, "Qwen3NextForCausalLM"),
    ("0.5.5.post2", "Next", "h100", SGL + "--disaggregation-mode decode", NOT_HIT, "decode"),
    ("0.5.5.post2", "Next", "h100", SGL + "--disable-radix-cache", NOT_HIT, "disable-radix-cache"),
    ("0.5.5.post2", "Llama", "h100", SGL, NOT_HIT, "LlamaForCausalLM"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"architecture": (("Qwen3NextForCausalLM", "JetNemotronForCausalLM"), "LlamaForCausalLM"),
     "kept recurrent states": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its servers are not flushed between prompts"
RUN_AS_IT_IS = "the engine empties the pool as it does"
