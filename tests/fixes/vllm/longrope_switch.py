"""Rows of vllm.longrope-switch for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.11.0", "Phi-4-mini", "h100", VLLM, POSSIBLE, "rope_scaling of type longrope"),
    ("0.10.0", "Phi-4-mini", "h100", VLLM + "--max-model-len 8192", POSSIBLE, "rope_scaling of type longrope"),
    ("0.11.0", "Llama", "h100", VLLM, NOT_HIT, "LlamaForCausalLM"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"architecture": (("Phi3ForCausalLM", "MiniCPMForCausalLM"), "LlamaForCausalLM")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no model with LongRoPE is in the space"
RUN_AS_IT_IS = "the embedding's constructor and the config's hash run as they are; what they give is changed behind them"
