"""Rows of vllm.gpt-oss-rotary for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.10.1", "gpt-oss", "h100", VLLM, HIT, "GptOssForCausalLM"),
    ("0.11.2", "gpt-oss-120b", "h100", VLLM + "--max-model-len 8192", HIT, "GptOssForCausalLM"),
    ("0.11.2", "gpt-oss-rounded", "h100", VLLM, NOT_HIT, "`truncate`"),
    ("0.11.2", "Llama", "h100", VLLM, NOT_HIT, "LlamaForCausalLM"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"architecture": (("GptOssForCausalLM",), "LlamaForCausalLM"), "bounds of YaRN that are not rounded": (("on",), "off")},
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "a table that is made while a model is loaded, which the space's models do not load"
RUN_AS_IT_IS = "a layer is made as it is made; the table that it leaves is written anew"
#: Functions that the engine gets without a guard, and why
UNGUARDED = {"_not_rounded.yarn_find_correction_range": "it runs while the fix computes a table, and not for the engine"}
