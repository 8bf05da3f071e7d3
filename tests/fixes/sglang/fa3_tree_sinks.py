"""Rows of sglang.fa3-tree-sinks for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import CHAIN, NGRAM, SGL, TREES

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.23", "gpt-oss", "h100", TREES + "--attention-backend fa3", HIT, "sinks: on (architecture"),
    ("0.5.1", "gpt-oss", "h100", NGRAM + "--attention-backend fa3", HIT, "n-gram speculation"),
    ("0.5.23", "gpt-oss", "h100", NGRAM + "--attention-backend fa3 --speculative-ngram-max-bfs-breadth 1", NOT_HIT,
     "trees of drafts: off"),
    ("0.5.23", "gpt-oss", "h100", CHAIN + "--attention-backend fa3", NOT_HIT, "trees of drafts: off"),
    ("0.5.23", "gpt-oss", "h100", SGL + "--attention-backend fa3", NOT_HIT, "drafts: off (no --spec"),
    ("0.5.23", "gpt-oss", "h100", TREES + "--attention-backend triton", NOT_HIT, "backend: triton"),
    ("0.5.23", "gpt-oss", "h100", TREES, HIT, "verify backend: fa3 (default of sglang 0.5.23"),
    ("0.5.23", "Llama", "h100", TREES + "--attention-backend fa3", NOT_HIT, "attention sinks: off"),
    ("0.5.23", "Granite", "h100", TREES + "--attention-backend fa3", POSSIBLE, "which layers of"),
    ("0.5.23", None, "h100", TREES + "--attention-backend fa3", POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"trees of drafts": (("on",), "off"), "attention sinks": (("on",), "off"), "verify backend": (("fa3", "fa4"), "triton")},
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "forward.once": "paged_kernel calls it, within its guard",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "attention-backend": "fa3",
    "model": "windows-sinks",
    "speculative-algorithm": "EAGLE",
    "speculative-eagle-topk": 2,
}
