"""Rows of vllm.gdn-launch-assert for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import MTP, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.17.1", "3.5", "h100", MTP, HIT, "layers of linear attention"),
    ("0.17.0", "Next", "mi300x", MTP, HIT, "speculative decoding: on (--speculative-config)"),
    ("0.17.1", "3.5", "h100", VLLM, NOT_HIT, "speculative decoding: off"),
    ("0.17.1", "Llama", "h100", MTP, NOT_HIT, "no layers of linear attention"),
    ("0.17.1", "3.5", "h100", VLLM + "--config a.yaml", POSSIBLE, "a.yaml, which is not read"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"linear attention": (("on",), "off"), "speculative decoding": (("on",), "off")},
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "starts_without_decodes.Starts.__torch_function__": "torch's own operation, or zeros",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no model with Gated DeltaNet is in the space"
