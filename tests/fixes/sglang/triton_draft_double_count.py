"""Rows of sglang.triton-draft-double-count for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import ON_V2, SPEC
from tests.support.ways import GRAPHS, SPEC_V2

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.12", "Llama", "h100", SPEC + "--attention-backend triton", HIT, "spec v2: on"),
    ("0.5.9", "Llama", "h100", ON_V2 + "--attention-backend triton", HIT, "spec v2: on"),
    ("0.5.9", "Llama", "h100", SPEC + "--attention-backend triton", NOT_HIT, "v2: off"),
    ("0.5.12", "Llama", "h100", SPEC + "--attention-backend triton --speculative-num-steps 5 --speculative-eagle-topk 8",
     NOT_HIT, "topk above 1"),
    ("0.5.12", "Llama", "h100", SPEC + "--attention-backend triton --speculative-num-steps 3 --speculative-eagle-topk 1", HIT,
     "spec v2: on"),
    ("0.5.12", "R1", "h100", SPEC, NOT_HIT, "draft extend backend: fa3"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {**SPEC_V2, "draft extend backend": (("triton",), "fa3"), "CUDA graphs": GRAPHS},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention-backend": "triton", "speculative-algorithm": "EAGLE", "disable-cuda-graph": False}
