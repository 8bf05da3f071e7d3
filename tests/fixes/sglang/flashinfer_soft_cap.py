"""Rows of sglang.flashinfer-soft-cap for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.23", "Gemma2", "a100", SGL, HIT, "Gemma2ForCausalLM with attn_logit_softcapping 50"),
    ("0.5.9", "Grok", "h100", SGL + "--attention-backend flashinfer", HIT, "softcapping 30"),
    ("0.5.9", "Gemma2", "h100", SGL + "--prefill-attention-backend fa3 --decode-attention-backend flashinfer", HIT,
     "decode backend: flashinfer"),
    ("0.5.9", "Gemma2", "h100", SGL, NOT_HIT, "backend: fa3"),
    ("0.5.9", "Uncapped", "a100", SGL, NOT_HIT, "with attn_logit_softcapping 0"),
    ("0.5.9", "Gemma3", "a100", SGL, NOT_HIT, "Gemma3ForCausalLM has none"),
    ("0.5.9", "gpt-oss", "a100", SGL + "--attention-backend flashinfer", NOT_HIT, "GptOssForCausalLM has none"),
    ("0.5.9", None, "a100", SGL, POSSIBLE, "needs the model's config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"prefill backend": (("flashinfer",), "triton"), "soft cap of scores": (("on",), "off")},
    {"decode backend": (("flashinfer",), "triton"), "soft cap of scores": (("on",), "off")},
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "with_cap.begin_forward": "planned guards it",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention-backend": "flashinfer", "model": "soft-cap"}
