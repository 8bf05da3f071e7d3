"""When vllm.both-empty-merge-triton hits: deployments, and the facts that decide."""

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
