"""Rows of vllm.dots-ocr-ranks for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.13.0", "dots.ocr", "h100", VLLM + "-tp 2", HIT, "--tensor-parallel-size"),
    ("0.33.0", "dots.ocr", "h100", VLLM + "-tp 4", HIT, "--tensor-parallel-size"),
    ("0.33.0", "dots.ocr", "h100", VLLM, NOT_HIT, "--tensor-parallel-size"),
    ("0.33.0", "dots.ocr", "h100", VLLM + "-tp 2 --mm-encoder-tp-mode data", NOT_HIT, "--mm-encoder-tp-mode"),
    ("0.33.0", "Qwen-VL", "h100", VLLM + "-tp 2", NOT_HIT, "architecture"),
    ("0.33.0", None, "h100", VLLM + "-tp 2", POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "architecture": (("DotsOCRForCausalLM",), "LlamaForCausalLM"),
        "ranks of the vision tower": ((2, 4), 1),
    }
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its models have no vision tower"
