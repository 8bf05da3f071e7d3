"""Rows of vllm.dsv32-indexer-rotary for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.11.0", "V3.2", "h200", VLLM, HIT, "sparse MLA"),
    ("0.11.2", "V3.2", "b200", VLLM + "-tp 8", HIT, "sparse MLA"),
    ("0.11.2", "R1", "h200", VLLM, NOT_HIT, "attention: MLA"),
    ("0.11.2", None, "h200", VLLM, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"attention": (("sparse MLA",), "MLA")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its space has no indexer"
RUN_AS_IT_IS = "attention is made as it is made; its indexer then gets a rotary embedding of the engine's"
#: Functions that the engine gets without a guard, and why
UNGUARDED = {
    "init.forward": "the engine's own with another rotary embedding: a compiler sees through it, and keys keep one style",
    "forward.turned": "one call of the engine's and two views, which a compiler sees through",
}
