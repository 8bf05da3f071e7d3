"""Rows of sglang.mha-draft-extend-routing for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import SPEC
from tests.support.ways import SPEC_V2

#: The same for development code, judged as if the code had the bug
DEVELOPMENT = [
    ("0.5.12", "Llama", "b200", SPEC + "--speculative-num-steps 3 --speculative-eagle-topk 1", HIT, "trtllm_mha"),
    ("0.5.12", "Llama", "h100", SPEC, NOT_HIT, "draft extend backend: fa3"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {**SPEC_V2, "draft extend backend": (("trtllm_mha",), "trtllm_mla")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no published release needs it"
