"""Rows of sglang.skip-seq-lens-sync for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import SPEC
from tests.support.ways import SPEC_V2

#: The same for development code, judged as if the code had the bug
DEVELOPMENT = [
    ("0.5.12", "R1", "b200", SPEC, HIT, "decode backend: trtllm_mla"),
    ("0.5.12", "R1", "b200", SPEC + "--enable-two-batch-overlap", NOT_HIT, "overlap: on"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {**SPEC_V2, "speculative algorithm": (("EAGLE", "EAGLE3"), "STANDALONE"), "decode backend": (("trtllm_mla",), "fa3"),
     "two-batch overlap": (("off",), "on")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "it is about time, and changes no result"
