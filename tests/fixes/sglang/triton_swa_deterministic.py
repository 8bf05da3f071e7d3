"""Rows of sglang.triton-swa-deterministic for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import EXACT, SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "gpt-oss", "h100", EXACT, HIT, "sliding-window KV pool: on (sglang 0.5.9 for"),
    ("0.5.9", "gpt-oss", "h100", SGL + "--attention-backend triton --rl-on-policy-target fsdp", HIT,
     "deterministic inference: on (--rl-on-policy-target)"),
    ("0.5.9", "gpt-oss", "h100", SGL + "--attention-backend triton", NOT_HIT, "off"),
    ("0.5.9", "gpt-oss", "h100", EXACT + "--disable-hybrid-swa-memory", NOT_HIT, "off"),
    ("0.5.9", "gpt-oss", "h100", EXACT + "--enable-hierarchical-cache", POSSIBLE, "read"),
    ("0.5.7", "gpt-oss", "h100", EXACT, POSSIBLE, "GptOssForCausalLM a KV pool of"),
    ("0.5.9", None, "h100", EXACT, POSSIBLE, "needs the model's config.json"),
    ("0.5.9", "Llama", "h100", EXACT, NOT_HIT, "LlamaForCausalLM has no window layers"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"deterministic inference": (("on",), "off"), "prefill backend": (("triton",), "fa3"),
     "sliding-window KV pool": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "deterministic inference replaces operators of CUDA alone, and is not in the space"
