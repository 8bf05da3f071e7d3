"""Rows of sglang.fa3-scheduler-metadata for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import DP, SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.11", "Llama", "h100", DP, HIT, "for other heads (--enable-dp-attention)"),
    ("0.5.12", "Llama", "h100", DP, NOT_HIT, "makes none with --enable-dp-attention"),
    ("0.5.13", "Llama", "h100", SGL + "--tp 8 --enable-prefill-context-parallel", HIT, "for other heads"),
    ("0.5.14", "Llama", "h100", SGL + "--tp 8 --attn-cp-size 2", HIT, "for other heads (--attn-cp-size)"),
    ("0.5.14", "Llama", "h100", SGL + "--tp 8 --attn-cp-size 1", NOT_HIT, "schedule: right"),
    ("0.5.20", "Llama", "h100", SGL + "--tp 8 --attn-cp-size 2", HIT, "for other heads (--attn-cp-size)"),
    ("0.5.20", "Llama", "h100", SGL + "--tp 8 --attn-cp-size 2 --enable-prefill-cp", NOT_HIT, "schedule: right"),
    ("0.5.11", "Llama", "h100", SGL + "--tp-size 8", NOT_HIT, "schedule: right"),
    ("0.5.11", "Llama", "h100", DP + "--attention-backend triton", NOT_HIT, "triton"),
    ("0.5.11", "R1", "h100", DP, NOT_HIT, "attention: MLA"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": (("MHA",), "MLA"), "decode backend": (("fa3",), "triton"),
     "FlashAttention schedule": (("for other heads",), "right")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "more than one rank is not in the space"
