"""Rows of vllm.pooling-chunk-race for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

_POOLS = VLLM + "--runner pooling "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.25.1", "Llama", "h100", _POOLS + "--enable-chunked-prefill", HIT, "vLLM 0.25.1, pooling"),
    ("0.25.1", "Llama", "h100", _POOLS, POSSIBLE, "--enable-chunked-prefill"),
    ("0.25.1", "Llama", "h100", VLLM + "--enable-chunked-prefill", POSSIBLE, "--runner"),
    ("0.25.1", "Llama", "h100", VLLM + "--runner generate", NOT_HIT, "--runner"),
    ("0.25.1", "Llama", "h100", "VLLM_USE_V2_MODEL_RUNNER=1 " + _POOLS, NOT_HIT, "VLLM_USE_V2_MODEL_RUNNER"),
    ("0.25.1", "Llama", "h100", _POOLS + "--async-scheduling", NOT_HIT, "--async-scheduling"),
    ("0.25.1", "Llama", "h100", _POOLS + "--no-enable-chunked-prefill", NOT_HIT, "chunked-prefill"),
    ("0.18.1", "Llama", "h100", _POOLS + "--no-async-scheduling --enable-chunked-prefill", HIT, "--async-scheduling"),
    ("0.18.1", "Llama", "h100", _POOLS + "--async-scheduling", NOT_HIT, "--async-scheduling"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"runner": (("pooling",), "generate"), "prompts in chunks": (("on",), "off"),
     "pooling models ahead of results": (("off",), "on")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its space has no pooling models, and no GPU that is behind"
#: Why what the target enters needs no witness
RUN_AS_IT_IS = "it makes a runner as it is made, and sets an event; what waits for it and copies are witnesses"
