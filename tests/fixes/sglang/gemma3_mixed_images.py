"""Rows of sglang.gemma3-mixed-images for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

_ON = SGL + "--enable-multimodal --attention-backend triton "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "Gemma3-VL", "h100", _ON, HIT, "--enable-multimodal"),
    ("0.5.23", "Gemma3-VL", "mi300x", _ON, HIT, "Gemma3ForConditionalGeneration"),
    ("0.5.23", "Gemma3-VL", "h100", SGL + "--attention-backend triton", NOT_HIT, "--enable-multimodal"),
    ("0.5.23", "Gemma3-VL", "h100", _ON + "--decode-attention-backend fa3", NOT_HIT, "fa3"),
    ("0.5.23", "Gemma3-VL", "h100", _ON + "--prefill-attention-backend fa3", NOT_HIT, "fa3"),
    ("0.5.23", "Gemma3", "h100", _ON, NOT_HIT, "Gemma3ForCausalLM"),
    ("0.5.23", None, "h100", _ON, POSSIBLE, "config.json"),
    ("0.5.23", "Gemma3-VL", "h100", None, POSSIBLE, "needs the launch command"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "images of Gemma 3": (("on",), "off"),
        "prefill backend": (("triton",), "fa3"),
        "decode backend": (("triton",), "fa3"),
    },
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its images are for a model without such masks"
