"""Rows of sglang.lora-captured-segments for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import SGL

_LORA = SGL + "--enable-lora "
_ONE, _NGRAM = _LORA + "--max-loras-per-batch 1 ", "--speculative-algorithm NGRAM "

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "Llama", "h100", _LORA, HIT, "LoRA backend: csgmv"),
    ("0.5.13", "Llama", None, SGL + "--lora-paths tenant=/adapters/1", HIT, "LoRA slots: 8"),
    ("0.5.4", "Llama", "h100", _LORA + "--lora-backend csgmv", HIT, "LoRA backend: csgmv"),
    ("0.5.9", "Llama", "h100", _LORA + "--max-loras-per-batch 1 --max-lora-chunk-size 64", HIT, "LoRA chunk: 64"),
    ("0.5.9", "Llama", "h100", _ONE + _NGRAM + "--speculative-num-draft-tokens 36", HIT, "LoRA drafts: 36"),
    ("0.5.9", "Llama", "h100", _ONE + _NGRAM, NOT_HIT, "LoRA drafts: 12"),
    ("0.5.4", "Llama", "h100", _LORA, NOT_HIT, "LoRA backend: triton"),
    ("0.5.9", "Llama", "h100", _LORA + "--lora-backend triton", NOT_HIT, "LoRA backend: triton"),
    ("0.5.9", "Llama", "h100", _LORA + "--max-loras-per-batch 1", NOT_HIT, "LoRA slots: 1"),
    ("0.5.9", "Llama", "h100", _LORA + "--disable-cuda-graph", NOT_HIT, "CUDA graphs"),
    ("0.5.9", "Llama", "h100", SGL, NOT_HIT, "LoRA adapters: off"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
_SERVED = {"LoRA adapters": (("on",), "off"), "LoRA backend": (("csgmv",), "triton"), "CUDA graphs": (("on",), "off")}
WAYS = [
    {**_SERVED, "LoRA slots": ((2, 8), 1)}, {**_SERVED, "LoRA chunk": ((32, 128), 16)}, {**_SERVED, "LoRA drafts": ((17,), 16)},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"adapters": 2, "disable-cuda-graph": False}
