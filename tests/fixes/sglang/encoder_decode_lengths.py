"""Rows of sglang.encoder-decode-lengths for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL
from tests.support.ways import GRAPHS

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "Mllama", "h100", SGL + "--attention-backend flashinfer", HIT, "Mllama"),
    ("0.5.9", "Mllama", "h100", SGL, NOT_HIT, "fa3 (default of sglang 0.5.9"),
    ("0.5.9", "Llama", "h100", SGL + "--attention-backend flashinfer", NOT_HIT, "r: off"),
    ("0.5.9", None, "h100", SGL + "--attention-backend flashinfer", POSSIBLE, "config.json"),
    ("0.5.9", "Mllama", "h100", SGL + "--attention-backend triton", NOT_HIT, "triton"),
    ("0.5.7", "Mllama", "h100", SGL, HIT, "flashinfer (default of sglang 0.5.7"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"encoder-decoder": (("on",), "off"), "decode backend": (("flashinfer",), "fa3"), "CUDA graphs": GRAPHS},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no encoder-decoder model is in the space"
