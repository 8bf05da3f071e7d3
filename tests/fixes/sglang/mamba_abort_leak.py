"""Rows of sglang.mamba-abort-leak for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

_TRACKED = SGL + "--mamba-scheduler-strategy extra_buffer "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.4", "Next", "h100", SGL, HIT, "Qwen3NextForCausalLM"),
    ("0.5.9", "3.5", "h100", SGL, HIT, "Qwen3_5ForConditionalGeneration"),
    ("0.5.7", "Nemotron", "h100", SGL + "--disaggregation-mode prefill", HIT, "NemotronHForCausalLM"),
    ("0.5.6", "Nemotron", "h100", SGL, NOT_HIT, "NemotronHForCausalLM"),
    ("0.5.6.post1", "Nemotron", "h100", SGL, HIT, "NemotronHForCausalLM"),
    ("0.5.8", "Next", "h100", SGL + "--speculative-algorithm NEXTN", HIT, "Qwen3NextForCausalLM"),
    ("0.5.9", "Next", "h100", SGL + "--speculative-algorithm NEXTN", NOT_HIT, "--speculative-algorithm"),
    ("0.5.9", "Next", "h100", _TRACKED + "--speculative-algorithm NEXTN", HIT, "Qwen3NextForCausalLM"),
    ("0.5.6.post1", "Next", "b200", SGL + "--attention-backend trtllm_mha", NOT_HIT, "trtllm_mha"),
    ("0.5.4", "Next", "h100", SGL + "--disaggregation-mode decode", NOT_HIT, "decode"),
    ("0.5.4", "Next", "h100", SGL + "--disable-radix-cache", NOT_HIT, "disable-radix-cache"),
    ("0.5.9", "Next", "h100", SGL + "--enable-hierarchical-cache", NOT_HIT, "hierarchical"),
    ("0.5.9", "Next", "h100", "SGLANG_EXPERIMENTAL_CPP_RADIX_TREE=1 " + SGL, NOT_HIT, "CPP_RADIX_TREE"),
    ("0.5.9", "Llama", "h100", SGL, NOT_HIT, "LlamaForCausalLM"),
    ("0.5.9", None, "h100", SGL, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"copied recurrent states": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its requests fit into the KV pool"
