"""Rows of sglang.drafter-idle-rank for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import DP, SGL

_EAGLE = "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --attention-backend fa3 "
_LAYERS = _EAGLE + "--enable-multi-layer-eagle "
_EAGER = _LAYERS + "--disable-cuda-graph "

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.17", "Llama", "h100", DP + _EAGER, HIT, "--enable-dp-attention"),
    ("0.5.16", "Llama", "h100", "SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH=1 " + DP + _LAYERS, HIT, "DRAFT_EXTEND"),
    ("0.5.17", "Llama", "h100", DP + _LAYERS, POSSIBLE, "above the largest graph"),
    ("0.5.17", "Llama", "h100", SGL + _EAGER, NOT_HIT, "--enable-dp-attention"),
    ("0.5.17", "Llama", "h100", DP + _EAGLE + "--disable-cuda-graph", NOT_HIT, "LlamaForCausalLM"),
    ("0.5.17", "Llama", "h100", DP + _EAGER + "--attention-backend triton", NOT_HIT, "triton"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"groups of ranks that attend": (("on",), "off"), "several draft layers": (("on",), "off"),
     "draft extend backend": (("fa3", "fa4", "aiter"), "triton"), "draft layers outside CUDA graphs": (("on",), "off")},
]  # fmt: skip
#: Functions that the engine calls without a guard: why
UNGUARDED = {
    "draft_extend_for_decode.partial": "it hands a batch on to the engine's own plan, whose errors are the engine's",
    "draft_extend_for_decode.plan": "one number is compared before the engine's own plan",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its servers have one rank, and one draft layer"
RUN_AS_IT_IS = "the step runs as it runs, without the plan of an empty batch"
