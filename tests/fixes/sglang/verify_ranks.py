"""Rows of sglang.verify-ranks for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

_EAGLE, _NGRAM = "--speculative-algorithm EAGLE ", "--speculative-algorithm NGRAM "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "Llama", "h100", SGL + _EAGLE + "--tp-size 2", HIT, "shared from 0.5.11 on alone"),
    ("0.5.17", "Llama", "mi300x", SGL + _EAGLE + "--tp 8", HIT, "--tp-size"),
    ("0.5.17", "Llama", "mi300x", SGL + "--speculative-algorithm FROZEN_KV_MTP --tp-size 2", HIT, "--tp-size"),
    ("0.5.13", "Llama", "h100", SGL + _NGRAM + "--tp-size 2", HIT, "shared from 0.5.14 on alone"),
    ("0.5.9", "Llama", "h100", SGL + _EAGLE + "--tp-size 4 --enable-dp-attention --dp-size 2", HIT, "2 on a group"),
    ("0.5.13", "Llama", "h100", SGL + _EAGLE + "--tp-size 2", NOT_HIT, "shared from 0.5.11 on"),
    ("0.5.9", "Llama", "h100", SGL + _EAGLE, NOT_HIT, "--tp-size"),
    ("0.5.9", "Llama", "h100", SGL + _EAGLE + "--tp-size 16 --nnodes 2", NOT_HIT, "--nnodes 2"),
    ("0.5.9", "Llama", "h100", SGL + "--tp-size 2", NOT_HIT, "--speculative-algorithm"),
    ("0.5.9", "Llama", "h100", None, POSSIBLE, "needs the launch command"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "speculative algorithm": (("EAGLE", "EAGLE3", "STANDALONE", "FROZEN_KV_MTP", "NGRAM"), "none"),
        "ranks that verify for themselves": (("on",), "off"),
        "several ranks on one machine": (("on",), "off"),
    },
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its servers have one rank"
