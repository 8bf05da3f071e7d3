"""Rows of sglang.dsa-short-prompt-keys for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

_PARALLEL = "--enable-nsa-prefill-context-parallel"

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.5", "V3.2", "h100", SGL, HIT, "DeepseekV32ForCausalLM"),
    ("0.5.9", "V3.2", "b200", SGL + "--tp 8", HIT, "NVIDIA"),
    ("0.5.9", "V3.2", "mi300x", SGL, NOT_HIT, "AMD"),
    ("0.5.9", "R1", "h100", SGL, NOT_HIT, "DeepseekV3ForCausalLM"),
    ("0.5.9", "V3.2", "h100", SGL + _PARALLEL, NOT_HIT, _PARALLEL),
    ("0.5.9", None, "h100", SGL, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"GPU": (("NVIDIA",), "AMD"), "attention": (("sparse MLA",), "MLA"), "index keys without queries": (("on",), "off")},
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its space has no indexer"
RUN_AS_IT_IS = "a projection and an embedding run as they run, with other rows in the place of queries that nobody reads"
