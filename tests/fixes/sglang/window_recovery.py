"""Rows of sglang.window-recovery for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "gpt-oss", "h100", SGL, HIT, "sliding-window KV pool: on (sglang 0.5.9 for"),
    ("0.5.9", "gpt-oss", "h100", SGL + "--disaggregation-mode prefill", HIT, "sliding-window KV pool: on"),
    ("0.5.9", "gpt-oss", "h100", SGL + "--disable-hybrid-swa-memory", NOT_HIT, "off"),
    ("0.5.9", "gpt-oss", "h100", SGL + "--disable-radix-cache", NOT_HIT, "disable-radix-cache"),
    ("0.5.9", "Llama", "h100", SGL, NOT_HIT, "LlamaForCausalLM has no window layers"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"sliding-window KV pool": (("on",), "off"), "radix cache for window layers alone": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no window pool of its servers is ever full"
RUN_AS_IT_IS = "the engine's caching runs as it is, behind a prefix that has all KV"
#: Place of what the engine is handed -> why it needs no guard
UNGUARDED = {"_along.<lambda>": "the walk that names it alone calls it"}
