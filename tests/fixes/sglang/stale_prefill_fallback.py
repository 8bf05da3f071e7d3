"""Rows of sglang.stale-prefill-fallback for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL, SPEC
from tests.support.ways import MLA

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "R1", "b200", SPEC + "--disable-chunked-prefix-cache --disable-cuda-graph", HIT, "and no CUDA graphs"),
    ("0.5.9", "R1", "b200", SPEC + "--disable-chunked-prefix-cache", POSSIBLE, "fits"),
    ("0.5.9", "R1", "b200", SPEC, POSSIBLE, "piecewise"),
    ("0.5.7", "R1", "b200", SPEC, NOT_HIT, "no --disable-chunked-prefix-cache"),
    ("0.5.15", "R1", "b200", SPEC, POSSIBLE, "piecewise CUDA graph was not read"),
    ("0.5.15", "R1", "h200", SPEC, NOT_HIT, "verify backend: fa3"),
    ("0.5.15", "R1", "b200", SGL, NOT_HIT, "speculative decoding: off"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": MLA, "speculative decoding": (("on",), "off"), "verify backend": (("trtllm_mla",), "flashinfer"),
     "verify after a fallback": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "the releases that it corrects lay drafts out in another way, which the harness does not read"
