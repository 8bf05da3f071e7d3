"""Rows of sglang.lse-log-base for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import BY_DECODE, CHAIN, DRAFTS_ON_FLASHINFER, EXTEND_BY_DECODE, NGRAM, ON_CUTEDSL, SGL, SPEC
from tests.support.ways import BASE_2, CHUNKED, PREFILL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.16", "R1", "h200", SGL + "--prefill-attention-backend fa3 --attention-backend flashinfer "
     "--speculative-algorithm EAGLE --speculative-draft-attention-backend flashinfer", HIT,
     "draft prefill backend: flashinfer"),
    ("0.5.16", "R1", "h200", SGL + "--attention-backend fa3 --speculative-algorithm EAGLE", NOT_HIT,
     "draft prefill backend: fa3"),
    ("0.5.23", "R1", "h100", SGL + "--attention-backend flashinfer", HIT, "prefill backend: flashinfer"),
    ("0.5.23", "R1", "b200", SGL + "--attention-backend tokenspeed_mla", POSSIBLE, "shares code with"),
    ("0.5.23", "R1", "h100", SGL, NOT_HIT, "prefill backend: fa3"),
    ("0.5.23", "V2", "b200", SGL, HIT, "prefill backend: flashinfer (default of sglang 0.5.23"),
    ("0.5.23", "Kimi-VL", "b200", SGL, HIT, "architecture KimiVLForConditionalGeneration"),
    ("0.5.9", "Llama", "h100", SGL + "--attention-backend flashinfer", NOT_HIT, "attention: MHA"),
    ("0.5.23", "R1", "b200", SPEC + "--attention-backend trtllm_mla --prefill-attention-backend fa3 " + BY_DECODE, HIT,
     "draft prefill backend: trtllm_mla"),
    *((release, "R1", "h100", CHAIN + BY_DECODE + "--prefill-attention-backend fa3 "
       "--decode-attention-backend flashmla", verdict, f"draft prefill backend: {backend}")
      for release, verdict, backend in (("0.5.15", NOT_HIT, "fa3"), ("0.5.16", HIT, "flashmla"), ("0.5.23", HIT, "flashmla"))),
    *((release, "R1", "h100", SPEC + BY_DECODE + "--attention-backend flashinfer "
       "--prefill-attention-backend triton", NOT_HIT, "triton") for release in ("0.5.14", "0.5.17", "0.5.18")),
    *(("0.5.23", "R1", "h100", SGL + BY_DECODE + "--speculative-draft-model-path d "
       "--attention-backend flashinfer --prefill-attention-backend fa3 --speculative-algorithm " + algorithm, verdict, "")
      for algorithm, verdict in (("EAGLE3", POSSIBLE), ("DFLASH", NOT_HIT), ("EAGLE", POSSIBLE))),
    ("0.5.13", "R1", "b200", SPEC + "--attention-backend trtllm_mla --prefill-attention-backend fa3 " + BY_DECODE, NOT_HIT,
     "draft prefill backend: fa3"),
    ("0.5.9", "R1", "h100", DRAFTS_ON_FLASHINFER + "--attention-backend triton", NOT_HIT, "has none"),
    ("0.5.23", "R1", "h100", DRAFTS_ON_FLASHINFER + "--attention-backend triton", NOT_HIT, "has none"),
    ("0.5.23", "R1", "h200", DRAFTS_ON_FLASHINFER + "--speculative-draft-model-path d", POSSIBLE,
     "whose attention was not read"),
    ("0.5.23", "R1", "h200", NGRAM + "--speculative-draft-attention-backend flashinfer", NOT_HIT, "no draft model"),
    ("0.5.23", "R1", "h100", EXTEND_BY_DECODE.replace("EAGLE", "eagle"), HIT, "flashinfer"),
    ("0.5.14", "R1", "h100", SPEC + "--attention-backend flashinfer --prefill-attention-backend triton "
     "--page-size 64 --speculative-draft-attention-backend flashmla", POSSIBLE, "how flashmla prefills"),
    ("0.5.23", "R1", "b200",
     SPEC + "--attention-backend fa4 --page-size 64 --speculative-draft-attention-backend cutedsl_mla", POSSIBLE,
     "shares code"),
    *(("0.5.23", "R1", "b200", ON_CUTEDSL.replace("fa4", by),
       HIT, "prefill backend: trtllm_mla") for by in ("fa4", "triton")),
    *(("0.5.23", "R1", gpu, ON_CUTEDSL.replace("fa4", "fa3"),
       NOT_HIT, "no server") for gpu in ("h100", "mi300x", "sm_120")),
    *((release, "R1", "b200", SGL + "--attention-backend fa4 --decode-attention-backend tokenspeed_mla",
       verdict, "") for release, verdict in (("0.5.16", NOT_HIT), ("0.5.23", HIT))),
    ("0.5.13", "R1", "b200", SGL + "--enable-deterministic-inference --decode-attention-backend tokenspeed_mla", POSSIBLE,
     "it depends on options"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    *({**CHUNKED, name: (BASE_2, "fa3")} for name in PREFILL),
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "to_natural.row": "lse_base calls it, within the correction",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention-backend": "flashinfer", "model": "mla", "latent-prefix": "chunks"}
