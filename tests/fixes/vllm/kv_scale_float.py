"""Rows of vllm.kv-scale-float for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import AITER, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.19.1", "FP8-KV", "l40s", VLLM + "--attention-backend FLASHINFER", HIT, "kv_cache_scheme"),
    ("0.19.1", "FP8-KV", "l40s", VLLM + "--attention-backend FLASH_ATTN", NOT_HIT, "FLASH_ATTN"),
    ("0.19.1", "FP8-KV", "l40s", VLLM, POSSIBLE, "the default depends on GPU"),
    ("0.19.1", "Llama", "l40s", VLLM + "--attention-backend FLASHINFER", NOT_HIT, "quantization none"),
    ("0.18.1", "FP8-KV", "mi300x", VLLM + "--attention-backend " + AITER, NOT_HIT, AITER),
    ("0.19.0", "FP8-KV", "mi300x", VLLM + "--attention-backend " + AITER, HIT, AITER),
    ("0.19.1", "FP8-KV-R1", "b200", VLLM + "--attention-backend FLASHINFER_MLA", NOT_HIT, "_MLA"),
    ("0.10.2", "R1", "b200", "VLLM_ATTENTION_BACKEND=FLASHINFER " + VLLM, POSSIBLE, "the query's scale"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"KV cache scales": (("compressed-tensors",), "others"), "scales of the attention backend": (("numbers",), "tensors")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention-backend": "FLASHINFER", "kv-cache-dtype": "fp8", "scales": "checkpoint"}
