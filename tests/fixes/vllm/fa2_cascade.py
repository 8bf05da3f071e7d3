"""Rows of vllm.fa2-cascade for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

_EAGER = VLLM + "--attention-backend FLASH_ATTN --enforce-eager "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.11.0", "Llama-GQA", "a100", _EAGER, HIT, "32 heads and 8 KV heads"),
    ("0.11.0", "Llama-GQA", "l40s", _EAGER, HIT, "default on l40s"),
    ("0.10.2", "Llama-GQA", "h100", "VLLM_FLASH_ATTN_VERSION=2 " + _EAGER, HIT, "default on h100"),
    ("0.11.0", "Llama-GQA", "h100", _EAGER, NOT_HIT, "FlashAttention 3 on h100"),
    ("0.11.0", "Llama-GQA", "mi300x", _EAGER, NOT_HIT, "has another FlashAttention"),
    ("0.11.0", "Llama-GQA", "a100", VLLM + "--attention-backend FLASH_ATTN", NOT_HIT, "full CUDA graphs: on"),
    ("0.11.0", "Llama-GQA", "a100", _EAGER + "--disable-cascade-attn", NOT_HIT, "--disable-cascade-attn"),
    ("0.11.0", "Llama-MHA", "a100", _EAGER, NOT_HIT, "queries of a KV head: one"),
    ("0.11.0", "Llama", "a100", _EAGER, POSSIBLE, "num_key_value_heads"),
    ("0.11.0", None, "a100", _EAGER, POSSIBLE, "config.json"),
    ("0.11.0", "Llama-GQA", None, _EAGER, POSSIBLE, "needs --gpu"),
    ("0.11.0", "Llama-GQA", "a100", _EAGER + "--config a.yaml", POSSIBLE, "a.yaml, which is not read"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"engine core": (("V1",), "V0"), "attention": (("MHA",), "MLA"), "attention backend": (("FLASH_ATTN",), "FLASHINFER"),
     "cascade attention by FlashAttention 2": (("on",), "off"), "queries of a KV head": (("several",), "one"),
     "full CUDA graphs": (("off",), "on"), "sliding-window layers": (("off",), "on")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "the LSEs of a compiled kernel, which the run's stand-in gives in the order that it says"
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "it builds the metadata of the step, told that no prefix is shared"
