"""Rows of sglang.falcon-h1-tensor-parallel for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "Falcon-H1", "h100", SGL + "--tp-size 2", HIT, "FalconH1ForCausalLM"),
    ("0.5.20", "Falcon-H1", "mi300x", SGL + "--tp 8", HIT, "--tp-size 8"),
    ("0.5.9", "Falcon-H1", "h100", SGL, NOT_HIT, "--tp-size"),
    ("0.5.9", "Falcon-H1", "h100", SGL + "--tp 8 --dp 4 --enable-dp-attention", NOT_HIT, "groups of ranks"),
    ("0.5.9", "Nemotron", "h100", SGL + "--tp-size 2", NOT_HIT, "NemotronHForCausalLM"),
    ("0.5.9", None, "h100", SGL + "--tp-size 2", POSSIBLE, "config.json"),
    ("0.5.9", "Falcon-H1", "h100", None, POSSIBLE, "needs the launch command"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "architecture": (("FalconH1ForCausalLM",), "NemotronHForCausalLM"),
        "ranks that share a layer": (("on",), "off"),
        "groups of ranks that attend": (("off",), "on"),
    },
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its servers have one rank"
RUN_AS_IT_IS = "it makes a layer as it is made; what the layer runs from then on are witnesses"
