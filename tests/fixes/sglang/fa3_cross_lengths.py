"""Rows of sglang.fa3-cross-lengths for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "Mllama", "h100", SGL, HIT, "prefill backend: fa3 (default of sglang 0.5.9"),
    ("0.5.7", "Mllama", "h100", SGL, NOT_HIT, "flashinfer (default"),
    ("0.5.7", "Mllama", "h100", SGL + "--attention-backend fa3", HIT, "Mllama"),
    ("0.5.12", "Mllama", "a100", SGL, NOT_HIT, "flashinfer (default"),
    ("0.5.12", "Llama", "h100", SGL, NOT_HIT, "encoder-decoder: off"),
    ("0.5.12", None, "h100", SGL + "--attention-backend fa3", POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"encoder-decoder": (("on",), "off"), "prefill backend": (("fa3", "fa4"), "triton")},
    {"encoder-decoder": (("on",), "off"), "decode backend": (("fa3", "fa4"), "triton")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no encoder-decoder model is in the space"
