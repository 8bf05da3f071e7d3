"""Rows of vllm.encoder-decoder-leak for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.14.0", "Whisper", "h100", VLLM, HIT, "WhisperForConditionalGeneration"),
    ("0.13.0", "Llama", "h100", VLLM, NOT_HIT, "architecture"),
    ("0.13.0", None, "h100", VLLM, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"architecture": (("WhisperForConditionalGeneration", "NemotronParseForConditionalGeneration"), "LlamaForCausalLM")},
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no encoder-decoder model is in the space"
