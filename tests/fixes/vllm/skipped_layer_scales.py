"""Rows of vllm.skipped-layer-scales for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import BF16, ON_FLASHINFER, SKIP, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.33.0", "FP8-KV", "l40s", ON_FLASHINFER + SKIP + "0 1", HIT, "dtype-skip-layers 0"),
    ("0.22.0", "FP8-KV", "l40s", ON_FLASHINFER + BF16, HIT, "--kv-cache-dtype bfloat16"),
    ("0.21.0", "FP8-KV", "l40s", ON_FLASHINFER + BF16, NOT_HIT, "no --kv-cache-dtype-skip"),
    ("0.33.0", "FP8-KV", "l40s", ON_FLASHINFER, NOT_HIT, "layers left unquantised: off"),
    ("0.33.0", "FP8-KV", "l40s", ON_FLASHINFER + SKIP + "sliding_window", POSSIBLE, "no sliding"),
    ("0.33.0", "Windows-KV", "l40s", ON_FLASHINFER + SKIP + "sliding_window", HIT, "sliding_w"),
    ("0.33.0", "FP8-KV", "l40s", ON_FLASHINFER + "--config a.yaml", POSSIBLE, "a.yaml, which is"),
    ("0.33.0", "Llama", "l40s", ON_FLASHINFER + SKIP + "0", NOT_HIT, "quantization none"),
    ("0.33.0", "FP8-KV", "b200", ON_FLASHINFER + SKIP + "0", POSSIBLE, "TRT-LLM's kernels on"),
    ("0.33.0", "FP8-KV", None, ON_FLASHINFER + SKIP + "0", POSSIBLE, "needs --gpu"),
    ("0.33.0", "FP8-KV", "h100", VLLM + SKIP + "0", POSSIBLE, "the default depends on GPU"),
    ("0.33.0", "FP8-KV", "h100", VLLM + "--attention-backend FLASH_ATTN " + SKIP + "0", NOT_HIT, "FLASH_ATTN"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"KV cache scales": (("compressed-tensors",), "others"), "layers left unquantised": (("on",), "off"),
     "kernels of the attention backend": (("FlashInfer",), "others")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention-backend": "FLASHINFER", "scales": "keys-values", "kv-cache-dtype-skip-layers": ("0",)}
