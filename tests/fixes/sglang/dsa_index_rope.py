"""Rows of sglang.dsa-index-rope for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.3", "V3.2", "h100", SGL, HIT, "DeepseekV32ForCausalLM"),
    ("0.5.5", "V3.2", "b200", SGL + "--tp 8", HIT, "DeepseekV32ForCausalLM"),
    ("0.5.5", "V3.2", "mi300x", SGL, NOT_HIT, "AMD"),
    ("0.5.5", "R1", "h100", SGL, NOT_HIT, "DeepseekV3ForCausalLM"),
    ("0.5.5", None, "h100", SGL, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"GPU": (("NVIDIA",), "AMD"), "attention": (("sparse MLA",), "MLA")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its space has no indexer"
RUN_AS_IT_IS = "an indexer is made as it is made, of the engine's own maker of rotary embeddings"
