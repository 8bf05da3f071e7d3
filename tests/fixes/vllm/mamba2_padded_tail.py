"""Rows of vllm.mamba2-padded-tail for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import MTP, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.28.0", "Nemotron", "h100", MTP, HIT, "Mamba2 layers: on"),
    ("0.28.0", "Nemotron", "h100", VLLM, NOT_HIT, "speculative decoding: off"),
    ("0.28.0", "Next", "h100", MTP, NOT_HIT, "Mamba2 layers: off"),
    ("0.29.0", None, "h100", MTP, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"Mamba2 layers": (("on",), "off"), "speculative decoding": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"recurrent": "mamba2", "speculative-method": "eagle", "enable-prefix-caching": True}
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "it runs the engine's scheduler as it is, with a value set that nothing but the target reads"
