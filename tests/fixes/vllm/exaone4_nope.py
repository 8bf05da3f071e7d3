"""Rows of vllm.exaone4-nope for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.10.1.1", "EXAONE-32B", "h100", VLLM, HIT, "layers of sliding_attention"),
    ("0.10.1.1", "EXAONE-1.2B", "h100", VLLM, NOT_HIT, "config.json has no sliding window"),
    ("0.10.1", "Windows-KV", "h100", VLLM, NOT_HIT, "architecture"),
    ("0.10.1", None, "h100", VLLM, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"architecture": (("Exaone4ForCausalLM",), "LlamaForCausalLM"), "sliding-window layers": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no EXAONE 4 is in the space"
RUN_AS_IT_IS = "a layer is made as it is made, and one of its attributes is changed behind it"
