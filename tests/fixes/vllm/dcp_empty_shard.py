"""Rows of vllm.dcp-empty-shard for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM
from tests.support.ways import MLA

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.24.0", "R1", "h100", VLLM + "-dcp 8 --attention-backend TRITON_MLA", HIT, "parallel size: 8"),
    ("0.27.1", "R1", "b200", VLLM + "-dcp 8 --attention-backend FLASHINFER_MLA", HIT, "FLASHINFER_MLA"),
    ("0.24.0", "R1", "h100", VLLM + "-dcp 8 --attention-backend FLASHMLA", NOT_HIT, "FLASHMLA"),
    ("0.27.1", "R1", "h100", VLLM + "-dcp 8 --attention-backend TRITON_MLA", NOT_HIT, "neutral"),
    ("0.24.0", "R1", "h100", VLLM + "-dcp 8 --attention-backend MINE", POSSIBLE, "MINE leaves was not"),
    ("0.24.0", "R1", "h100", VLLM + "-dcp 8", NOT_HIT, "FLASH_ATTN_MLA"),
    ("0.24.0", "R1", "b200", VLLM + "-dcp 8", HIT, ""),
    ("0.24.0", "R1", "h100", VLLM + "-dcp 8 --block-size 64", POSSIBLE, "may choose another"),
    ("0.24.0", "R1", "h100", VLLM + "--attention-backend TRITON_MLA", NOT_HIT, "parallel size: 1"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": MLA, "decode context parallel size": ((2, 8), 1), "decode without KV": (("undefined",), "neutral")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention": "MLA", "decode-context-parallel-size": 2, "tensor-parallel-size": 2}
