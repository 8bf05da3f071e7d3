"""Rows of vllm.dcp-page-counts for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.25.1", "Llama", "h100", VLLM + "-dcp 2 --attention-backend FLASHINFER", HIT, "FLASHINFER"),
    ("0.25.1", "Llama", "h100", VLLM + "-dcp 2", POSSIBLE, "the default depends on"),
    ("0.25.1", "Llama", "h100", VLLM + "-dcp 2 --attention-backend FLASH_ATTN", NOT_HIT, "FLASH_ATTN"),
    ("0.25.1", "Llama", "h100", VLLM + "--attention-backend FLASHINFER", NOT_HIT, "size: 1"),
    ("0.12.0", "Llama", "h100", "VLLM_ATTENTION_BACKEND=FLASHINFER " + VLLM + "-dcp 2", POSSIBLE, "up to 0.13.0"),
    ("0.25.1", "R1", "h100", VLLM + "-dcp 2 --attention-backend FLASHINFER", NOT_HIT, "attention: MLA"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": (("MHA",), "MLA"), "decode context parallel size": ((2, 8), 1),
     "attention backend": (("FLASHINFER",), "FLASH_ATTN"), "FlashInfer's page counts": (("wrong",), "right")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "attention-backend": "FLASHINFER",
    "attention": "MQA",
    "decode-context-parallel-size": 2,
    "tensor-parallel-size": 2,
    "dtype": "float16",
}
