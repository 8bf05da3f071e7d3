"""Rows of vllm.flashinfer-q-scale for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import COMPUTED, KEPT, ON_FLASHINFER, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.27.1", "Llama", "l40s", ON_FLASHINFER + COMPUTED, HIT, "--calculate-kv-scales"),
    ("0.27.1", "Llama", "h100", ON_FLASHINFER + COMPUTED + KEPT, HIT, "q_quantization"),
    ("0.27.1", "Llama", "h100", ON_FLASHINFER + COMPUTED, POSSIBLE, "FP8 in prefills"),
    ("0.27.1", "Llama", "h100", ON_FLASHINFER + "--calculate-kv-scales", HIT, "is not quantised"),
    ("0.27.1", "Llama", "b200", ON_FLASHINFER + COMPUTED, NOT_HIT, "FP8 (b200"),
    ("0.27.1", "Llama", "b200", ON_FLASHINFER + COMPUTED + KEPT, POSSIBLE, "TRT-LLM's kernels on"),
    ("0.27.1", "Llama", "l40s", ON_FLASHINFER, NOT_HIT, "scales of queries: none"),
    ("0.27.1", "Llama", "l40s", ON_FLASHINFER + "--config a.yaml", POSSIBLE, "a.yaml, which is"),
    ("0.27.1", "Falcon-H1", "l40s", ON_FLASHINFER + COMPUTED, POSSIBLE, "not for hybrid"),
    ("0.33.0", "FP8-KV", "l40s", ON_FLASHINFER, POSSIBLE, "have a q_scale"),
    ("0.33.0", "FP8-KV", "mi300x", VLLM, NOT_HIT, "FlashInfer is NVIDIA's"),
    ("0.33.0", "FP8-KV", None, ON_FLASHINFER, POSSIBLE, "needs --gpu"),
    ("0.33.0", "FP8-KV", "l40s", VLLM + "--attention-backend FLASH_ATTN", NOT_HIT, "FLASH_ATTN"),
    ("0.33.0", "FP8-KV-R1", "l40s", ON_FLASHINFER, NOT_HIT, "attention: MLA"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": (("MHA",), "MLA"), "scales of queries": (("of a checkpoint", "computed"), "none"),
     "queries of FlashInfer": (("the model's",), "FP8"),
     "kernels of the attention backend": (("FlashInfer",), "others")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention-backend": "FLASHINFER", "scales": "checkpoint"}
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "it runs a forward pass as it is, and gives the kernel's wrapper a number by the dtype of its query"
