"""Rows of sglang.fa3-mla-tree-pages for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import CHAIN, SGL, SPEC, TREES
from tests.support.ways import MLA

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.23", "R1", "h200", TREES + "--page-size 16", HIT, "page size: 16 (--page-size"),
    ("0.5.6", "V2", "h200", TREES + "--page-size 64 --attention-backend fa3", HIT, "backend: fa3"),
    ("0.5.23", "R1", "h200", TREES, NOT_HIT, "page size: 1"),
    ("0.5.9", "R1", "h200", TREES + "--decode-attention-backend flashmla", HIT, "page size: 64 (decode backend: flashmla"),
    ("0.5.23", "R1", "h200", CHAIN + "--page-size 16", NOT_HIT, "trees of drafts: off"),
    ("0.5.23", "R1", "h200", SGL + "--page-size 16", NOT_HIT, "no --speculative-algorithm"),
    ("0.5.23", "R1", "h200", SPEC + "--page-size 16", POSSIBLE, "speculative-eagle-topk"),
    ("0.5.23", "R1", "b200", TREES + "--page-size 16", NOT_HIT, "backend: trtllm_mla"),
    ("0.5.23", "R1", "h200", TREES + "--page-size 4 --attention-backend triton", NOT_HIT, "triton"),
    ("0.5.23", "Llama", "h200", TREES + "--page-size 16 --attention-backend fa3", NOT_HIT, "MHA"),
    ("0.5.23", None, "h200", TREES + "--page-size 16 --attention-backend fa3", POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"trees of drafts": (("on",), "off"), "page size": ((16, 64), 1), "attention": MLA,
     "verify backend": (("fa3",), "triton")},
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "forward_extend.by_slots": "paged_kernel calls it, within its guard",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "attention-backend": "fa3",
    "model": "mla",
    "page-size": 16,
    "speculative-algorithm": "EAGLE",
    "speculative-eagle-topk": 2,
}
