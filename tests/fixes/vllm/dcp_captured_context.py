"""Rows of vllm.dcp-captured-context for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import DCP_FLASH, VLLM
from tests.support.ways import GRAPHS

_V1 = "VLLM_USE_V2_MODEL_RUNNER=0 "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.32.0", "Llama", "h100", DCP_FLASH, HIT, "parallel size: 2"),
    ("0.26.0", "Llama", "a100", DCP_FLASH, HIT, "model runner: V2"),
    ("0.32.0", "Llama", "h100", _V1 + DCP_FLASH, NOT_HIT, "model runner: V1"),
    ("0.32.0", "Llama", "h100", DCP_FLASH + " --enforce-eager", NOT_HIT, "full CUDA graphs: off"),
    ("0.32.0", "Llama", "h100", VLLM + "-dcp 2", POSSIBLE, "the default depends on GPU"),
    ("0.32.0", "Llama", "h100", VLLM + "-dcp 2 --attention-backend FLASHINFER", NOT_HIT, "FLASHINFER"),
    ("0.32.0", "Llama", "h100", VLLM + "--attention-backend FLASH_ATTN", NOT_HIT, "parallel size: 1"),
    ("0.32.0", "R1", "h100", VLLM + "-dcp 2", NOT_HIT, "attention: MLA"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": (("MHA",), "MLA"), "attention backend": (("FLASH_ATTN",), "FLASHINFER"), "full CUDA graphs": GRAPHS,
     "decode context parallel size": ((2, 8), 1), "model runner": (("V2",), "V1")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "attention-backend": "FLASH_ATTN",
    "attention": "MQA",
    "decode-context-parallel-size": 2,
    "tensor-parallel-size": 2,
    "dtype": "float16",
    "cudagraph-mode": "FULL_DECODE_ONLY",
    "former-model-runner": False,
}
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "it builds metadata as they are built, from other lengths on the host"
