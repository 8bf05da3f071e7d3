"""Rows of sglang.eagle-draft-positions for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import CHAIN, NGRAM, ON_V2, SGL, SPEC, TREES, WIDE

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.11", "Llama", "h100", WIDE, HIT, "speculative steps: 5"),
    ("0.5.11", "R1", "h100", CHAIN, HIT, "speculative steps: 3"),
    ("0.5.11", "R1", "mi300x", CHAIN, HIT, "speculative steps: 3"),
    ("0.5.8", "Llama", "h100", TREES, HIT, "EAGLE3"),
    ("0.5.8", "Llama", "h100", ON_V2 + "--speculative-num-steps 3 --speculative-eagle-topk 1", HIT, "speculative steps: 3"),
    ("0.5.11", "R1", "h100", SPEC + "--speculative-num-steps 1 --speculative-eagle-topk 1", NOT_HIT, "speculative steps: 1"),
    ("0.5.11", "R1", "h100", CHAIN + "--enable-multi-layer-eagle", NOT_HIT, "--enable-multi-layer-eagle"),
    ("0.5.11", "Llama", "h100", NGRAM, NOT_HIT, "NGRAM"),
    ("0.5.11", "Llama", "h100", SGL, NOT_HIT, "none"),
    ("0.5.11", "Llama", "h100", None, POSSIBLE, "needs the launch command"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "speculative algorithm": (("EAGLE", "EAGLE3", "STANDALONE"), "NGRAM"),
        "speculative steps": (("2",), "1"),
        "several draft layers": (("off",), "on"),
    },
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"speculative-algorithm": "EAGLE", "speculative-num-steps": 3}
