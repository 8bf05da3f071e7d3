"""Rows of sglang.fa3-context-limit for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import CHAIN, NGRAM, SGL, SPEC

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.16", "Llama", "h100", NGRAM + "--prefill-attention-backend triton --decode-attention-backend fa3", NOT_HIT,
     "no draft model"),
    ("0.5.23", "Llama", "h100", CHAIN, HIT, "verify backend: fa3"),
    ("0.5.9", "R1", "h100", CHAIN + "--attention-backend fa3", HIT, "speculative decoding: on"),
    ("0.5.23", "Llama", "b200", CHAIN + "--attention-backend fa4", HIT, "verify backend: fa4"),
    ("0.5.23", "Llama", "h100", SGL + "--attention-backend fa3", NOT_HIT, "decoding: off"),
    ("0.5.23", "Llama", "h100", CHAIN + "--attention-backend triton", NOT_HIT, "triton"),
    ("0.5.23", "Llama", "h100", CHAIN + "--disable-cuda-graph", NOT_HIT, "CUDA graphs: off"),
    ("0.5.23", "Llama", "h100", None, POSSIBLE, "needs the launch command"),
    ("0.5.23", "Llama", "h100", SPEC + "--attention-backend flashinfer --speculative-draft-attention-backend fa3", HIT,
     "draft decode backend: fa3"),
    ("0.5.23", "Llama", "h100", SPEC + "--cuda-graph-backend-decode disabled", NOT_HIT,
     "(--cuda-graph-backend-decode disabled)"),
    ("0.5.23", "Llama", "h100", SPEC + "--cuda-graph-config {}", POSSIBLE, "may turn them off"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"speculative decoding": (("on",), "off"), "verify backend": (("fa3", "fa4"), "triton"), "CUDA graphs": (("on",), "off")},
    {"speculative decoding": (("on",), "off"),
     "draft decode backend": (("fa3", "fa4"), "triton"), "CUDA graphs": (("on",), "off")},
    {"speculative decoding": (("on",), "off"),
     "draft extend backend": (("fa3", "fa4"), "triton"), "CUDA graphs": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention-backend": "fa3", "speculative-algorithm": "EAGLE", "disable-cuda-graph": False}
