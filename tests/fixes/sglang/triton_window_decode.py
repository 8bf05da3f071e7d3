"""Rows of sglang.triton-window-decode for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import CHAIN, SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.23", "Gemma2", "h100", SGL + "--attention-backend triton", HIT, "without the token"),
    ("0.5.9", "gpt-oss", "a100", SGL + "--decode-attention-backend triton", HIT, "GptOss"),
    ("0.5.1", "Gemma3-VL", "h100", SGL + "--attention-backend triton", HIT, "Gemma3ForCond"),
    ("0.5.23", "Gemma2", "h100", SGL, NOT_HIT, "decode backend: fa3"),
    ("0.5.23", "Gemma2", "a100", SGL, NOT_HIT, "decode backend: flashinfer"),
    ("0.5.23", "Gemma2", "h100", CHAIN + "--attention-backend triton", NOT_HIT, "decoding: on"),
    ("0.5.23", "Llama", "h100", SGL + "--attention-backend triton", NOT_HIT, "no window layers"),
    ("0.5.23", "Next", "h100", SGL + "--attention-backend triton", NOT_HIT, "window of the runner: none"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"decode backend": (("triton",), "fa3"), "speculative decoding": (("off",), "on"),
     "window of the runner": (("a token short",), "none")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention-backend": "triton", "model": "windows"}
