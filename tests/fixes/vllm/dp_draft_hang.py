"""Rows of vllm.dp-draft-hang for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import MTP_METHOD, ONE_DRAFT, RANKS, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.11.2", "R1", "h200", RANKS + MTP_METHOD, HIT, "draft tokens of a step: several"),
    ("0.10.0", "R1", "h200", RANKS + MTP_METHOD, HIT, "data parallel ranks: 8"),
    ("0.11.2", "R1", "h200", RANKS + "-sc.method=mtp -sc.num_speculative_tokens=1", NOT_HIT, "of a step: one"),
    ("0.11.2", "R1", "h200", RANKS + ONE_DRAFT, NOT_HIT, "drafts from hidden states: off"),
    ("0.11.2", "R1", "h200", RANKS, NOT_HIT, "speculative"),
    ("0.11.2", "R1", "h200", VLLM + MTP_METHOD, NOT_HIT, "data parallel ranks: 1"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "data parallel ranks": ((2, 8), 1),
        "drafts from hidden states": (("on",), "off"),
        "draft tokens of a step": (("several",), "one"),
    },
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "it is about how often ranks exchange, and changes no result"
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "it runs the engine's dummy batch as it is, and the dummy pass of its drafter more often"
#: Functions that the engine gets without a guard, and why
UNGUARDED = {
    "repeated.dummy_run": "execute_dummy_batch hands it to call.guard",
}
