"""Rows of vllm.swa-admission-crash for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

_ONE_KIND = VLLM + "--disable-hybrid-kv-cache-manager"

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.20.1", "gpt-oss", "h100", VLLM, HIT, "blocks that windows free: on"),
    ("0.20.0", "Llama4", "h100", VLLM, HIT, "blocks that windows free: on"),
    ("0.20.1", "Llama4", "h100", _ONE_KIND, NOT_HIT, "some layers see all tokens"),
    ("0.20.1", "Gemma3", "h100", _ONE_KIND, POSSIBLE, "if no layer sees all tokens"),
    ("0.20.1", "Llama", "h100", VLLM, NOT_HIT, "no sliding window"),
    ("0.20.1", None, "h100", VLLM, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"blocks that windows free": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its servers have room for all requests, and their blocks are never all in use"
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "it allocates as the engine does; by which count, and what is taken, are witnesses"
