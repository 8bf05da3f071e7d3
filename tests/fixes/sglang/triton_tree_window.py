"""Rows of sglang.triton-tree-window for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import CHAIN, NGRAM, SGL, TREES

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.23", "Gemma3", "a100", TREES + "--attention-backend triton", HIT, "a token short"),
    ("0.5.1", "gpt-oss", "b200", NGRAM + "--attention-backend triton", HIT, "n-gram speculation"),
    ("0.5.23", "Gemma3", "a100", CHAIN + "--attention-backend triton", NOT_HIT, "drafts: off"),
    ("0.5.23", "Gemma3", "a100", SGL + "--attention-backend triton", NOT_HIT, "no --speculative"),
    ("0.5.23", "Gemma3", "a100", TREES + "--attention-backend flashinfer", NOT_HIT, "flashinfer"),
    ("0.5.23", "Llama", "a100", TREES + "--attention-backend triton", NOT_HIT, "no window layers"),
    ("0.5.23", "Granite", "a100", TREES + "--attention-backend triton", NOT_HIT, "window of the runner: none"),
    ("0.5.23", "Gemma3", "a100", TREES + "--attention-backend triton --enable-deterministic-inference", NOT_HIT,
     "deterministic inference: on"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"trees of drafts": (("on",), "off"), "window of the runner": (("a token short",), "none"),
     "verify backend": (("triton",), "fa3"), "deterministic inference": (("off",), "on")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "attention-backend": "triton",
    "model": "windows",
    "speculative-algorithm": "EAGLE",
    "speculative-eagle-topk": 2,
}
