"""Rows of sglang.lora-prefix-key for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.20", "Llama", "h100", SGL + "--enable-lora --disaggregation-mode prefill", HIT, "decode servers send them"),
    ("0.5.9", "Llama", "h100", SGL + "--enable-lora --disaggregation-mode prefill", POSSIBLE, "extra_key or cache_salt"),
    ("0.5.9", "Llama", "h100", SGL + "--enable-lora", POSSIBLE, "extra_key or cache_salt"),
    ("0.5.17", "Llama", None, SGL + "--lora-paths tenant=/adapters/1", POSSIBLE, "extra_key or cache_salt"),
    ("0.5.20", "Llama", None, SGL + "--lora-paths tenant=/adapters/1", POSSIBLE, "send them as extra_key"),
    ("0.5.9", "Llama", "h100", SGL, NOT_HIT, "LoRA adapters: off"),
    ("0.5.9", "Llama", "h100", SGL + "--enable-lora --disable-radix-cache", NOT_HIT, "disable-radix-cache"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"LoRA adapters": (("on",), "off"), "radix cache": (("on",), "off"),
     "keys that end in an adapter's id": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no request of its space has an `extra_key`"
RUN_AS_IT_IS = "it makes a request as it is made, with another key"
