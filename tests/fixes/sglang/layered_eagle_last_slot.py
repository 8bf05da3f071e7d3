"""Rows of sglang.layered-eagle-last-slot for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

_EAGLE = SGL + "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
_LAYERS = _EAGLE + "--enable-multi-layer-eagle "
_DECODE = _LAYERS + "--disaggregation-mode decode --max-running-requests "
_V2 = "SGLANG_ENABLE_SPEC_V2=1 "

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.11", "Llama", "h100", _LAYERS, HIT, "slots of sglang 0.5.11 begin at 1"),
    ("0.5.9", "Llama", "h100", _V2 + _DECODE + "16", HIT, "--max-running-requests 16"),
    ("0.5.9", "Llama", "h100", _V2 + _DECODE + "64", POSSIBLE, "at most 32 requests"),
    ("0.5.9", "Llama", "h100", _V2 + _DECODE + "16 --disable-cuda-graph", NOT_HIT, "writes no hidden states"),
    ("0.5.9", "Llama", "h100", _V2 + _LAYERS, NOT_HIT, "slots begin at 0"),
    ("0.5.11", "Llama", "h100", "SGLANG_ENABLE_SPEC_V2=0 " + _LAYERS, NOT_HIT, "SGLANG_ENABLE_SPEC_V2"),
    ("0.5.11", "Llama", "h100", _EAGLE, NOT_HIT, "LlamaForCausalLM"),
    ("0.5.11", None, "h100", _EAGLE, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"several draft layers": (("on",), "off"), "spec v2 of several draft layers": (("on",), "off"),
     "speculative steps": ((3,), 1), "slots behind the hidden states": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its models have one draft layer"
RUN_AS_IT_IS = "backends are made as they are made, behind a buffer that is longer"
