"""Rows of vllm.dcp-fa2-split for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import DCP_FLASH, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.33.0", "Llama", "a100", DCP_FLASH, HIT, "FlashAttention 2 on a100"),
    ("0.33.0", "Llama", "rtx5090", DCP_FLASH, HIT, "FlashAttention 2 on rtx5090"),
    ("0.33.0", "Llama", "h100", DCP_FLASH, NOT_HIT, "FLASH_ATTN: others"),
    ("0.33.0", "Llama", "h100", DCP_FLASH + " -ac.flash_attn_version=2", HIT, "flash_attn_version"),
    ("0.33.0", "Llama", "h100", DCP_FLASH + " -ac.flash_attn_version=x", POSSIBLE, "x is no number"),
    ("0.33.0", "Llama", "b200", DCP_FLASH, POSSIBLE, "for what 4 does not serve"),
    ("0.33.0", "Llama", "mi300x", DCP_FLASH, POSSIBLE, "was not read"),
    ("0.33.0", "Llama", None, DCP_FLASH, POSSIBLE, "needs --gpu"),
    ("0.33.0", "Llama", "a100", VLLM + "--attention-backend FLASH_ATTN", NOT_HIT, "parallel size: 1"),
    ("0.33.0", "R1", "a100", VLLM + "-dcp 2", NOT_HIT, "attention: MLA"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": (("MHA",), "MLA"), "attention backend": (("FLASH_ATTN",), "FLASHINFER"),
     "decode context parallel size": ((2, 8), 1), "FlashAttention of FLASH_ATTN": (("2",), "others")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "attention-backend": "FLASH_ATTN",
    "attention": "MQA",
    "decode-context-parallel-size": 2,
    "tensor-parallel-size": 2,
    "dtype": "float16",
    "capability": (8, 0),
}
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "it builds metadata as they are built, and notes beside them the rows that their counts leave out"
