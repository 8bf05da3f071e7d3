"""Rows of sglang.cohere2-rope for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.1", "Command-A", "h100", SGL, HIT, "Cohere2ForCausalLM"),
    ("0.5.7", "Command-A", "mi300x", SGL + "--attention-backend triton", HIT, "Cohere2ForCausalLM"),
    ("0.5.7", "Llama", "h100", SGL, NOT_HIT, "LlamaForCausalLM"),
    ("0.5.7", None, "h100", SGL, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"architecture": (("Cohere2ForCausalLM",), "CohereForCausalLM")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "a layer's constructor, and none of its models is Cohere's"
RUN_AS_IT_IS = "it makes a layer as it is made; what the layer runs from then on are witnesses"
#: Functions that the engine gets without a guard, and why
UNGUARDED = {"init.as_they_are": "it returns what it is given"}
