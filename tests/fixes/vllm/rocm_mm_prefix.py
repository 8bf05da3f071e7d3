"""Rows of vllm.rocm-mm-prefix for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.25.1", "PaliGemma", "mi300x", VLLM, HIT, "model_type paligemma"),
    ("0.31.0", "PaliGemma", "mi300x", VLLM + "--attention-backend ROCM_ATTN", HIT, "--attention-backend"),
    ("0.25.1", "PaliGemma", "mi300x", VLLM + "--attention-backend TRITON_ATTN", NOT_HIT, "TRITON_ATTN"),
    ("0.25.1", "PaliGemma", "h100", VLLM, NOT_HIT, "NVIDIA"),
    ("0.25.1", "Llama", "mi300x", VLLM, NOT_HIT, "model_type llama"),
    ("0.25.1", "PaliGemma", "mi300x", VLLM + "--language-model-only", POSSIBLE, "--language-model-only"),
    ("0.25.1", None, "mi300x", VLLM, POSSIBLE, "config.json"),
    ("0.18.1", "PaliGemma", "mi300x", VLLM, NOT_HIT, "TRITON_ATTN"),
    ("0.18.1", "PaliGemma", "mi300x", VLLM + "--attention-config.use_prefill_decode_attention true", HIT, "ROCM_ATTN"),
    ("0.18.1", "PaliGemma", "mi300x", "VLLM_ROCM_USE_AITER=1 VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION=1 " + VLLM, HIT, "UNIFIED"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "GPU": (("AMD",), "NVIDIA"), "images seen both ways": (("on",), "off"),
        "backend on AMD": (("ROCM_ATTN", "ROCM_AITER_UNIFIED_ATTN"), "TRITON_ATTN"),
    },
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its servers run on NVIDIA's platform"
