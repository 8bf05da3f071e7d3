"""Rows of vllm.lora-prefix-key for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

_LORA = VLLM + "--enable-lora "
_UPDATES = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 " + _LORA

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.25.1", "Llama", "h100", _UPDATES, HIT, "$VLLM_ALLOW_RUNTIME_LORA_UPDATING"),
    ("0.30.0", "Nemotron", "h100", _UPDATES, HIT, "prefix caching: on"),
    ("0.25.1", "Llama", None, _UPDATES + "--enable-prefix-caching", HIT, "--enable-prefix-caching"),
    ("0.25.1", "Llama", "h100", VLLM, NOT_HIT, "LoRA adapters: off"),
    ("0.25.1", "Llama", "h100", _UPDATES + "--no-enable-prefix-caching", NOT_HIT, "prefix-caching"),
    ("0.25.1", "Nemotron", "h100", _UPDATES, NOT_HIT, "for hybrids"),
    ("0.25.1", "Llama", "h100", _LORA, POSSIBLE, "a resolver may load adapters"),
    ("0.25.1", "Llama", "h100", _UPDATES + "--runner pooling", POSSIBLE, "--runner"),
    ("0.25.1", None, "h100", _UPDATES, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"LoRA adapters": (("on",), "off"), "prefix caching": (("on",), "off"), "adapters change while serving": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "each of its adapters keeps its name, and none is loaded again"
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "it runs the intake of a request as it is, and gives it another hasher"
#: Functions that the engine gets without a guard, and why
UNGUARDED = {"with_paths.adapter_keys": "it reads two fields that each LoRARequest has"}
