"""Rows of vllm.longrope-switch for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.11.0", "Phi-4-mini", "h100", VLLM, HIT, "131072, longrope's original 4096"),
    ("0.10.0", "Phi-4-mini", "h100", VLLM + "--max-model-len 8192", HIT, "8192, longrope's original 4096"),
    ("0.10.0", "Phi-4-mini", "h100", VLLM + "--max-model-len 4096", NOT_HIT, "4096, longrope's original 4096"),
    ("0.10.0", "Phi-4-mini", "h100", VLLM + "--config a.yaml", POSSIBLE, "a.yaml"),
    ("0.11.0", "Llama", "h100", VLLM, NOT_HIT, "no rope_scaling of type longrope"),
    ("0.11.0", None, "h100", VLLM, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"lengths beyond LongRoPE's original": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no model with LongRoPE is in the space"
RUN_AS_IT_IS = "the embedding's constructor and the config's hash run as they are; what they give is changed behind them"
