"""Rows of vllm.prefill-context-merge for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import VLLM
from tests.support.ways import MLA, NVIDIA, PREFIX

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.16.0", "R1", "h100", VLLM, HIT, "GPU: NVIDIA"),
    ("0.16.0", "Llama", "h100", VLLM, NOT_HIT, "attention: MHA"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": MLA, "cached prefix": PREFIX, "GPU": NVIDIA},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "it is about time, and changes no result"
