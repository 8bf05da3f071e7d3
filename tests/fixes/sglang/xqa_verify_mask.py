"""Rows of sglang.xqa-verify-mask for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL, SPEC

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.12", "Llama", "rtx5090", SPEC + "--attention-backend trtllm_mha", HIT, "kernel: XQA"),
    ("0.5.12", "Llama", "b200", SPEC + "--attention-backend trtllm_mha", NOT_HIT, "its own"),
    ("0.5.12", "Llama", "rtx5090", SGL + "--attention-backend trtllm_mha", NOT_HIT, "none"),
    ("0.5.12", "Llama", "rtx5090", SPEC, NOT_HIT, "flashinfer"),
    ("0.5.12", "Llama", None, SPEC + "--attention-backend trtllm_mha", POSSIBLE, "needs --gpu"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": (("MHA",), "MLA"), "verify backend": (("trtllm_mha",), "fa3"),
     "speculative algorithm": (("EAGLE", "EAGLE3", "STANDALONE"), "NGRAM"), "TRT-LLM MHA's kernel": (("XQA",), "its own")},
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "masked.trtllm_batch_decode_with_kv_cache": "its caller guards it",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "the stand-in for TRT-LLM's kernels on pages is that of Blackwell's, not XQA"
