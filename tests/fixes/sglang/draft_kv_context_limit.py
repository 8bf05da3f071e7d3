"""Rows of sglang.draft-kv-context-limit for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import CHAIN, SGL, TREES
from tests.support.ways import SPEC_V2

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.23", "Llama", "a100", CHAIN, HIT, "draft decode backend: flashinfer"),
    ("0.5.9", "Llama", "h100", TREES + "--attention-backend flashinfer", HIT, "algorithm: EAGLE3"),
    ("0.5.23", "Llama", "h100", CHAIN, NOT_HIT, "draft decode backend: fa3"),
    ("0.5.23", "Llama", "a100", SGL, NOT_HIT, "speculative algorithm: none"),
    ("0.5.23", "Llama", "a100", CHAIN.replace("steps 3", "steps 1"), NOT_HIT, "speculative steps: 1"),
    ("0.5.23", "R1", "h100", CHAIN + "--attention-backend flashinfer", HIT, "flashinfer"),
    ("0.5.23", "Llama", "h100", CHAIN + "--attention-backend triton", HIT, "backend: triton"),
    ("0.5.9", "R1", "b200", CHAIN, HIT, "lists of slots on trtllm_mla: on"),
    ("0.5.13", "R1", "b200", CHAIN, NOT_HIT, "lists of slots on trtllm_mla: off"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"speculative algorithm": SPEC_V2["speculative algorithm"], "speculative steps": ((2, 5), 1),
     "draft decode backend": (("flashinfer", "triton"), "fa3")},
    {"speculative algorithm": SPEC_V2["speculative algorithm"], "speculative steps": ((2, 5), 1),
     "draft decode backend": (("trtllm_mla",), "fa3"), "lists of slots on trtllm_mla": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"speculative-algorithm": "EAGLE", "speculative-num-steps": 3, "attention-backend": "triton"}
