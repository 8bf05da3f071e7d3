"""Rows of vllm.both-empty-merge-triton for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import VLLM
from tests.support.ways import MERGED, OTHERS

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.25.1", "R1", "mi300x", VLLM, HIT, "GPU: AMD"),
    ("0.25.1", "R1", "h100", VLLM, NOT_HIT, "GPU: NVIDIA"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {**MERGED, "GPU": OTHERS},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "the merge is that of CUDA here"
