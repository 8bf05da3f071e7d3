"""Rows of sglang.mla-draft-lengths for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import CHAIN, SGL
from tests.support.ways import MLA, SPEC_V2

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.23", "R1", "b200", CHAIN, HIT, "draft decode backend: trtllm_mla"),
    ("0.5.9", "R1", "h100", CHAIN + "--attention-backend flashmla", HIT, "flashmla"),
    ("0.5.1", "R1", "a100", CHAIN + "--attention-backend flashinfer", HIT, "attention: MLA"),
    ("0.5.23", "R1", "h100", CHAIN + "--attention-backend flashinfer --speculative-draft-model-path eagle", POSSIBLE,
     "was not read"),
    ("0.5.9", "R1", "h100", CHAIN + "--attention-backend flashinfer --speculative-draft-model-path m", HIT,
     "is the model itself"),
    ("0.5.23", "R1", "h100", CHAIN + "--attention-backend flashmla --speculative-draft-attention-backend fa3", NOT_HIT,
     "draft decode backend: fa3"),
    ("0.5.23", "R1", "h100", CHAIN + "--attention-backend fa3", NOT_HIT, "fa3"),
    ("0.5.23", "R1", "b200", CHAIN.replace("steps 3", "steps 1"), NOT_HIT, "steps: 1"),
    ("0.5.23", "R1", "b200", SGL, NOT_HIT, "speculative algorithm: none"),
    ("0.5.23", "Llama", "a100", CHAIN, NOT_HIT, "attention: MHA"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"speculative algorithm": SPEC_V2["speculative algorithm"], "speculative steps": ((2, 5), 1), "attention": MLA,
     "draft decode backend": (("flashmla", "trtllm_mla"), "fa3")},
    {"speculative algorithm": SPEC_V2["speculative algorithm"], "speculative steps": ((2, 5), 1), "attention": MLA,
     "draft decode backend": (("flashinfer",), "triton"), "latent attention of the drafter": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"model": "mla", "speculative-algorithm": "EAGLE", "speculative-num-steps": 3}
