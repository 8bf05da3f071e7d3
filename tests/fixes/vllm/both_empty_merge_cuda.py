"""Rows of vllm.both-empty-merge-cuda for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import VLLM
from tests.support.ways import MERGED, NVIDIA

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.11.0", "R1", "h100", VLLM, HIT, "GPU: NVIDIA"),
    ("0.11.0", "R1", "mi300x", VLLM, NOT_HIT, "GPU: AMD"),
    ("0.10.2", "R1", "h100", "VLLM_USE_V1=0 " + VLLM, NOT_HIT, "engine core: V0"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {**MERGED, "GPU": NVIDIA},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention": "MLA", "attention-backend": "FLASH_ATTN_MLA"}
