"""Rows of vllm.gdn-draft-conv-slots for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import MTP, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.10.2", "Next", "h100", MTP, HIT, "layers of linear attention"),
    ("0.10.2", "Next", "h100", MTP + "--enforce-eager", HIT, "speculative decoding: on (--speculative-config)"),
    ("0.10.2", "Next", "h100", VLLM, NOT_HIT, "speculative decoding: off"),
    ("0.10.2", "Llama", "h100", MTP, NOT_HIT, "no layers of linear attention"),
    ("0.10.2", None, "h100", MTP, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"linear attention": (("on",), "off"), "speculative decoding": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no model with Gated DeltaNet is in the space"
