"""Rows of sglang.hybrid-chunk-metadata for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL, TWO
from tests.support.ways import CHUNKED

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "R1", "h100", TWO, HIT, "hybrid backend: on (prefill flashinfer"),
    ("0.5.9", "R1", "h100", SGL + "--prefill-attention-backend flashinfer", HIT, "decode fa3"),
    ("0.5.9", "R1", "h100", SGL + "--attention-backend flashinfer", NOT_HIT, "backend: off"),
    ("0.5.9", "R1", "h100", SGL + "--decode-attention-backend flashmla", NOT_HIT, "fa3"),
    ("0.5.9", "Ring", "h100", SGL + "--attention-backend flashinfer", HIT, "linear attention"),
    ("0.5.9", "R1", "h100", TWO + "--disable-chunked-prefix-cache", NOT_HIT, "off"),
    ("0.5.9", None, "h100", TWO, POSSIBLE, "needs the model's config.json"),
    ("0.5.16", "R1", "b200", SGL + "--config x.yaml --decode-attention-backend cutedsl_mla", POSSIBLE, "what prefills"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {**CHUNKED, "prefill backend": (("flashinfer", "flashmla", "cutlass_mla"), "trtllm_mla"),
     "hybrid backend": (("on",), "off")},
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "handing_over.init_mha_chunk_metadata": "_with_plan guards it",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "prefill-attention-backend": "flashinfer",
    "attention-backend": "fa3",
    "model": "mla",
    "latent-prefix": "chunks",
}
