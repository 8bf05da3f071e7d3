"""Rows of vllm.session-stale-hash for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import CACHED, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.31.0", "Voxtral-realtime", "h100", CACHED, HIT, "VoxtralRealtimeGeneration"),
    ("0.31.0", "Voxtral-realtime", "h100", VLLM + "--no-enable-prefix-caching", NOT_HIT, "prefix caching: off"),
    ("0.31.0", "Llama", "h100", CACHED, NOT_HIT, "architecture"),
    ("0.31.0", None, "h100", CACHED, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "prefix caching": (("on",), "off"),
        "architecture": (
            ("VoxtralRealtimeGeneration", "VoxtralStreamingGeneration", "Qwen3ASRRealtimeGeneration"), "LlamaForCausalLM",
        ),
    },
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no request is a session of streamed input"
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "it updates a session as the engine does; what is kept, and how blocks are hashed, are witnesses"
