"""Rows of vllm.fa3-cascade for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM
from tests.support.ways import CASCADE, GRAPHS

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.10.2", "gpt-oss", "h100", VLLM + "--attention-backend FLASH_ATTN", HIT, "has model_type gpt_oss"),
    ("0.11.0", "Llama", "h100", VLLM + "--attention-backend FLASH_ATTN", HIT, "full CUDA graphs: on"),
    ("0.11.0", "Llama", "h100", VLLM + "--attention-backend FLASH_ATTN --enforce-eager", NOT_HIT, "attention sinks: off"),
    ("0.10.1", "gpt-oss-120b", "h100", VLLM, HIT, "default of vLLM 0.10.1 for heads of 64"),
    ("0.11.0", "gpt-oss-120b", "h100", VLLM, HIT, "default of vLLM 0.11.0 for heads of 64"),
    ("0.11.0", "gpt-oss-120b", "h100", VLLM + "--dtype float32", POSSIBLE, "the default depends on"),
    ("0.10.2", "gpt-oss-120b", "h100", "VLLM_USE_V1=0 " + VLLM, POSSIBLE, "the default depends on"),
    ("0.11.0", "gpt-oss", "h100", VLLM, POSSIBLE, "the default depends on"),
    ("0.11.0", "gpt-oss", "h100", VLLM + "--disable-cascade-attn", NOT_HIT, "--disable-cascade-attn"),
    ("0.11.0", "gpt-oss", "a100", VLLM, NOT_HIT, "has no FlashAttention 3"),
    ("0.11.0", "gpt-oss", "h100", "VLLM_FLASH_ATTN_VERSION=2 " + VLLM, NOT_HIT, "VLLM_FLASH_ATTN_VERSION"),
    ("0.11.0", None, "h100", VLLM + "--enforce-eager", POSSIBLE, "needs the model's config.json"),
    ("0.11.0", "gpt-oss", None, VLLM, POSSIBLE, "needs --gpu"),
    ("0.11.0", "gpt-oss", "h100", VLLM + "--config a.yaml", POSSIBLE, "a.yaml, which is not read"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {**CASCADE, "attention sinks": (("on",), "off")},
    {**CASCADE, "full CUDA graphs": GRAPHS},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "attention-backend": "FLASH_ATTN",
    "sinks": True,
    "windows": "none",
    "disable-cascade-attn": False,
    "max-model-len": 512,
    "max-num-seqs": 16,
}
