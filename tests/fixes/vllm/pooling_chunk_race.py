"""Rows of vllm.pooling-chunk-race for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.25.1", "Llama", "h100", VLLM + "--runner pooling", POSSIBLE, "a model served for pooling"),
    ("0.25.1", "Llama", "h100", VLLM + "--runner generate", NOT_HIT, "--runner"),
    ("0.25.1", "Llama", "h100", VLLM + "--async-scheduling", NOT_HIT, "--async-scheduling"),
    ("0.18.1", "Llama", "h100", VLLM + "--runner pooling --no-async-scheduling", POSSIBLE, "prompts of several chunks"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"--runner": (("pooling", "auto"), "generate"), "pooling models ahead of results": (("off",), "on")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its space has no pooling models, and no GPU that is behind"
#: Why what the target enters needs no witness
RUN_AS_IT_IS = "it makes a runner as it is made, and sets an event; what waits for it and copies are witnesses"
