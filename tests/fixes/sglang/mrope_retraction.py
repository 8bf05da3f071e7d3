"""Rows of sglang.mrope-retraction for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.1", "Qwen-VL", "h100", SGL, HIT, "mrope_section"),
    ("0.5.5.post3", "Qwen-VL", "mi300x", SGL + "--tp-size 2", HIT, "mrope_section"),
    ("0.5.5", "Qwen-VL", "h100", SGL + "--disaggregation-mode decode", NOT_HIT, "--disaggregation-mode"),
    ("0.5.5", "Qwen-VL", "h100", SGL + "--disaggregation-mode prefill", NOT_HIT, "--disaggregation-mode"),
    ("0.5.5", "Llama", "h100", SGL, NOT_HIT, "no mrope_section"),
    ("0.5.5", None, "h100", SGL, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"M-RoPE": (("on",), "off"), "answers that are prefilled again": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its images are for a model without M-RoPE"
RUN_AS_IT_IS = "it makes the next round of a request as it is made, whose positions are longer before it"
