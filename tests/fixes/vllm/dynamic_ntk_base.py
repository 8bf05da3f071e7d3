"""Rows of vllm.dynamic-ntk-base for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.21.0", "InternLM", "h100", VLLM + "--max-model-len 32768", HIT, "rope_scaling of config.json is dynamic"),
    ("0.10.0", "InternLM", "h100", VLLM, HIT, "rope_scaling of config.json is dynamic"),
    ("0.21.0", "Phi-4-mini", "h100", VLLM, NOT_HIT, "no dynamic rope_scaling"),
    ("0.21.0", None, "h100", VLLM, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"dynamic NTK": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no model with dynamic NTK is in the space"
RUN_AS_IT_IS = "the embedding's constructor runs as it is; the table that it leaves is written anew"
