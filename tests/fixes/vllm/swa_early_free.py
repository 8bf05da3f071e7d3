"""Rows of vllm.swa-early-free for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

_EAGLE = VLLM + "-sc.method=eagle3 -sc.model=d -sc.num_speculative_tokens=3 "
_NGRAM = VLLM + "-sc.method=ngram_gpu -sc.num_speculative_tokens=3 "
_ONE_KIND = "--disable-hybrid-kv-cache-manager"

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.19.1", "gpt-oss", "h100", _EAGLE, HIT, "blocks that windows free: on"),
    ("0.12.0", "Gemma3", "h100", _EAGLE + "--async-scheduling", HIT, "blocks that windows free: on"),
    ("0.25.1", "Llama4", "h100", _NGRAM, HIT, "blocks that windows free: on"),
    ("0.25.1", "Gemma3", "h100", _EAGLE + _ONE_KIND, POSSIBLE, "if no layer sees all tokens"),
    ("0.25.1", "Llama4", "h100", _NGRAM + _ONE_KIND, NOT_HIT, "some layers see all tokens"),
    ("0.19.1", "gpt-oss", "h100", _EAGLE + "--no-async-scheduling", NOT_HIT, "async scheduling: off"),
    ("0.19.1", "gpt-oss", "h100", VLLM, NOT_HIT, "speculative decoding: off"),
    ("0.19.1", "Llama", "h100", _EAGLE, NOT_HIT, "no sliding window"),
    ("0.19.1", None, "h100", _EAGLE, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "async scheduling": (("on",), "off"),
        "speculative decoding": (("on",), "off"),
        "blocks that windows free": (("on",), "off"),
    }
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its servers run a step at a time, and their blocks are never all in use"
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "it allocates as the engine does; by which count a manager frees, and who frees, are witnesses"
