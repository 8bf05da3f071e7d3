"""Rows of vllm.draft-first-step-slots for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import MTP, VLLM

_EAGLE = MTP + "-sc.method=eagle -sc.model=drafter "
_DRAFTER = VLLM + "-sc.model=drafter -sc.method=draft_model -sc.num_speculative_tokens=1 "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.22.1", "Llama", "h100", _EAGLE, HIT, "draft tokens of a step: several"),
    ("0.22.1", "Next", "h100", MTP + "-sc.method=mtp", HIT, "draft tokens of a step: several"),
    ("0.22.1", "Llama", "h100", _DRAFTER, HIT, "draft_model"),
    ("0.22.1", "Llama", "h100", VLLM + "-sc.method=dflash -sc.model=drafter -sc.num_speculative_tokens=1", HIT, "dflash"),
    ("0.22.1", "Llama", "h100", VLLM + "-sc.method=eagle -sc.model=drafter -sc.num_speculative_tokens=1", NOT_HIT, "one"),
    ("0.22.1", "Llama", "h100", MTP + "-sc.method=ngram", NOT_HIT, "drafts from hidden states: off"),
    ("0.22.1", "Llama", "h100", VLLM, NOT_HIT, "drafts from hidden states: off"),
    ("0.22.1", "Llama", "h100", MTP, POSSIBLE, "drafts from hidden states"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"drafts from hidden states": (("on",), "off"), "draft tokens of a step": (("several",), "one")},
    {"drafter that writes the sampled token": (("on",), "off")},
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "which blocks a scheduler gives out: its steps have the blocks of all their tokens"
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "the scheduler runs as it is, and asks for the blocks of more tokens"
