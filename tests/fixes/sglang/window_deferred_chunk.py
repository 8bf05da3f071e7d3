"""Rows of sglang.window-deferred-chunk for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.11", "gpt-oss", "h100", SGL, HIT, "sliding-window KV pool: on"),
    ("0.5.12", "gpt-oss", "h100", SGL + "--disaggregation-mode prefill", HIT, "--disaggregation-mode"),
    ("0.5.12", "gpt-oss", "h100", SGL, NOT_HIT, "--disaggregation-mode"),
    ("0.5.11", None, "h100", SGL, POSSIBLE, "config.json"),
    ("0.5.11", "gpt-oss", "h100", SGL + "--disable-hybrid-swa-memory", NOT_HIT, "off"),
    ("0.5.11", "gpt-oss", "h100", SGL + "--chunked-prefill-size -1", NOT_HIT, "prompts in chunks: off"),
    ("0.5.11", "Llama", "h100", SGL, NOT_HIT, "LlamaForCausalLM has no window layers"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"sliding-window KV pool": (("on",), "off"), "prompts in chunks": (("on",), "off"),
     "prompts cached in each turn": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no window pool of its servers is ever full"
RUN_AS_IT_IS = "the engine adds a chunk as it does, or puts it off"
