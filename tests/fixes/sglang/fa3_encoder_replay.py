"""Rows of sglang.fa3-encoder-replay for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.23", "Mllama", "h100", SGL, HIT, "fa3 (default of sglang 0.5.23"),
    ("0.5.13", "Mllama", "h100", SGL + "--disable-cuda-graph", HIT, "Mllama"),
    ("0.5.23", "Mllama", "h100", SGL + "--prefill-attention-backend flashinfer --decode-attention-backend fa3", HIT,
     "decode backend: fa3"),
    ("0.5.23", "Mllama", "h100", SGL + "--attention-backend flashinfer", NOT_HIT, "flashinfer"),
    ("0.5.23", "Mllama", "a100", SGL, NOT_HIT, "flashinfer (default"),
    ("0.5.23", "Llama", "h100", SGL, NOT_HIT, "encoder-decoder: off"),
    ("0.5.23", None, "h100", SGL + "--attention-backend fa3", POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"encoder-decoder": (("on",), "off"), "prefill backend": (("fa3", "fa4"), "triton")},
    {"encoder-decoder": (("on",), "off"), "decode backend": (("fa3", "fa4"), "triton")},
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "_bounded_table.BoundedTable.__getitem__": "torch's own look-up; the clamp before it is of indices that the engine has "
    "just made",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no encoder-decoder model is in the space"
