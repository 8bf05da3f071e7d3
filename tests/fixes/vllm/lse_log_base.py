"""Rows of vllm.lse-log-base for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import ONE_DRAFT, UNCACHED, VLLM
from tests.support.ways import CORE, PREFIX, RAGGED_PREFILL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.13.0", "R1", "b200", VLLM, HIT, "MLA prefill backend: flashinfer"),
    ("0.13.0", "R1", "b200", "VLLM_DISABLE_FLASHINFER_PREFILL=1 " + VLLM, NOT_HIT, "flash_attn"),
    ("0.10.2", "R1", "b200", VLLM, POSSIBLE, "whether FlashInfer is installed"),
    ("0.13.0", "R1", "h100", VLLM, NOT_HIT, "flash_attn"),
    ("0.25.1", "Llama", "h100", VLLM + "-dcp 2 --attention-backend FLASHINFER", HIT, "FLASHINFER"),
    ("0.13.0", "Llama", "h100", "VLLM_ATTENTION_BACKEND=FLASHINFER " + VLLM + "-dcp 2", HIT, "VLLM_ATT"),
    ("0.25.1", "Llama", "h100", VLLM + "-dcp 2", POSSIBLE, "the default depends on"),
    ("0.25.1", "Llama", "h100", VLLM + "--attention-backend FLASHINFER", NOT_HIT, "parallel size: 1"),
    ("0.25.1", "Llama", "h100", UNCACHED, NOT_HIT, "cached prefix: off"),
    ("0.25.1", "Llama", "h100", UNCACHED + ONE_DRAFT, HIT, "speculative decoding: on"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {**RAGGED_PREFILL, "engine core": CORE, "MLA prefill backend": (("trtllm_ragged", "flashinfer"), "cudnn")},
    {"attention": (("MHA",), "MLA"), "cached prefix": PREFIX, "decode context parallel size": ((2, 8), 1),
     "attention backend": (("FLASHINFER",), "FLASH_ATTN")},
    {"attention": (("MHA",), "MLA"), "speculative decoding": (("on",), "off"), "decode context parallel size": ((2, 8), 1),
     "attention backend": (("FLASHINFER",), "FLASH_ATTN")},
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "trtllm_new_tokens.starts": "lse_base calls it, within the correction",
    "trtllm_context_chunk.starts": "lse_base calls it, within the correction",
    "flashinfer.<lambda>": "lse_base calls it, within the correction",
    "_natural.row": "lse_base calls it, within the correction",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "attention-backend": "FLASHINFER",
    "attention": "MQA",
    "decode-context-parallel-size": 2,
    "tensor-parallel-size": 2,
    "dtype": "float16",
}
