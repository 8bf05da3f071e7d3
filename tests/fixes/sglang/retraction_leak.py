"""Rows of sglang.retraction-leak for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.3.post3", "Llama", "h100", SGL, HIT, "steps overlap: on"),
    ("0.5.3.post2", "gpt-oss", "mi300x", SGL + "--disaggregation-mode decode", HIT, "speculative decoding: off"),
    ("0.5.3.post3", "Llama", "h100", SGL + "--disable-overlap-schedule", NOT_HIT, "disable-overlap-schedule"),
    ("0.5.3.post3", "Llama", "h100", SGL + "--pp-size 2", NOT_HIT, "pp-size 2"),
    ("0.5.3.post3", "Llama", "h100", SGL + "--disaggregation-mode prefill", NOT_HIT, "prefill"),
    ("0.5.3.post3", "Llama", "h100", SGL + "--speculative-algorithm EAGLE", NOT_HIT, "speculative decoding: on"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "steps overlap": (("on",), "off"),
        "answers that may be taken back": (("on",), "off"),
        "speculative decoding": (("off",), "on"),
    },
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its requests fit into the KV pool"
RUN_AS_IT_IS = "the engine takes a request back as it does, and a slot that is left over becomes free"
