"""Rows of vllm.tower-lora-encoder-cache for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import VLLM

_LORA = VLLM + "--enable-lora --enable-tower-connector-lora "
_UPDATES = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 "

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.25.1", "Qwen-VL", "h100", _UPDATES + _LORA, HIT, "$VLLM_ALLOW_RUNTIME_LORA_UPDATING"),
    ("0.25.1", "Qwen-VL", "h100", _UPDATES + VLLM + "--enable-lora", NOT_HIT, "LoRA adapters of the encoder: off"),
    ("0.25.1", "Qwen-VL", "h100", _UPDATES + VLLM + "--enable-tower-connector-lora", NOT_HIT, "LoRA adapters: off"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "LoRA adapters of the encoder": (("on",), "off"),
        "LoRA adapters": (("on",), "off"),
        "adapters change while serving": (("on",), "off"),
    }
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its models have no encoder"
