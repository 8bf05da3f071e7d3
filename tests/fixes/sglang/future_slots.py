"""Rows of sglang.future-slots for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

_FEW = SGL + "--max-running-requests 8 --chunked-prefill-size 2048 "
_HELD = _FEW + "--max-total-tokens 131072 "

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.5", "Llama", "h100", _HELD, HIT, "up to 128 parts"),
    ("0.5.2", "Llama", None, _HELD, HIT, "up to 128 parts"),
    ("0.5.5", "Llama", "h100", _HELD + "--dp-size 8 --enable-dp-attention", HIT, "up to 1024 parts"),
    ("0.5.5", "Next", "h100", SGL, POSSIBLE, "needs --max-running-requests"),
    ("0.5.5", "Llama", "h100", _FEW, POSSIBLE, "needs --max-running-requests"),
    ("0.5.5", "Llama", "h100", _HELD + "--enable-mixed-chunk", POSSIBLE, "log-probabilities"),
    ("0.5.5", "Llama", "h100", SGL, NOT_HIT, "at least 2048 requests"),
    ("0.5.5", "Llama", "h100", _HELD + "--disable-overlap-schedule", NOT_HIT, "overlap schedule: off"),
    ("0.5.5", "Llama", "h100", _HELD + "--disaggregation-mode decode", NOT_HIT, "servers of their own"),
    ("0.5.5", "Llama", "h100", _FEW + "--max-total-tokens 4096", NOT_HIT, "up to 4 parts"),
    ("0.5.5", "Llama", "h100", SGL + "--max-running-requests 8 --chunked-prefill-size -1", NOT_HIT, "-1"),
]  # fmt: skip
_ALL = {"overlap schedule": (("on",), "off"), "more chunks than running requests": (("on",), "off")}
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {**_ALL, "speculative decoding": (("off",), "on")},
    {**_ALL, "spec v2": (("on",), "off")},
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its prompts have fewer chunks than three for each request"
RUN_AS_IT_IS = "a scheduler's streams and ring are made as they are made, and the ring is then longer"
