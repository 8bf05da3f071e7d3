"""Rows of vllm.dcp-decode-lse-base for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.11.2", "Llama", "h100", "VLLM_ATTENTION_BACKEND=FLASHINFER " + VLLM + "-dcp 2", HIT, "VLLM_ATT"),
    ("0.11.2", "Llama", "h100", "VLLM_ATTENTION_BACKEND=FLASHINFER " + VLLM, NOT_HIT, "size: 1"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": (("MHA",), "MLA"), "decode context parallel size": ((2, 8), 1),
     "attention backend": (("FLASHINFER",), "FLASH_ATTN")},
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "forward.natural.<lambda>": "lse_base calls it, within what call.watch calls",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "attention-backend": "FLASHINFER",
    "attention": "MQA",
    "decode-context-parallel-size": 2,
    "tensor-parallel-size": 2,
    "dtype": "float16",
}
