"""Rows of sglang.flashinfer-swa-prefill for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "Gemma2", "a100", SGL, HIT, "backend: flashinfer (default of sglang 0.5.9"),
    ("0.5.23", "Gemma3", "a100", SGL, HIT, "missed (no SGLANG_FLASHINFER_USE_PAGED=1"),
    ("0.5.23", "Gemma3-VL", "a100", SGL, HIT, "architecture Gemma3ForConditionalGeneration"),
    ("0.5.15", "Gemma3-VL", "l40s", SGL + "--enable-multimodal", HIT, "in either mode"),
    ("0.5.16", "Gemma3-VL", "l40s", SGL + "--enable-multimodal", NOT_HIT, "(--enable-multi"),
    ("0.5.16", "Gemma2", "l40s", SGL + "--enable-multimodal", HIT, "missed"),
    ("0.5.16", "Gemma2", "a100", "SGLANG_FLASHINFER_USE_PAGED=1 " + SGL, NOT_HIT, "PAGED=1"),
    ("0.5.15", "Gemma2", "a100", "SGLANG_FLASHINFER_USE_PAGED=1 " + SGL, HIT, "either mode"),
    ("0.5.16", "Gemma2", "a100", "SGLANG_FLASHINFER_USE_PAGED=0 " + SGL, HIT, "missed"),
    ("0.5.16", "Gemma2", "a100", SGL + "--attention-backend flashinfer --enable-deterministic-inference", NOT_HIT,
     "(--enable-deterministic-inference)"),
    ("0.5.9", "Gemma2", "h100", SGL, NOT_HIT, "prefill backend: fa3"),
    ("0.5.7", "Gemma3", "h100", SGL, HIT, "sglang 0.5.7: Gemma3ForCausalLM on h100"),
    ("0.5.8", "Gemma3", "h100", SGL, NOT_HIT, "prefill backend: fa3"),
    ("0.5.9", "Gemma3", "b200", SGL, NOT_HIT, "prefill backend: trtllm_mha"),
    ("0.5.9", "Gemma3", "h100", SGL + "--attention-backend flashinfer", HIT, "(--attention-b"),
    ("0.5.9", "Gemma3", "h100", SGL + "--prefill-attention-backend flashinfer --decode-attention-backend fa3", HIT,
     "(--prefill-attention-backend)"),
    ("0.5.9", "Gemma3", "a100", SGL + "--attention-backend triton", NOT_HIT, "triton"),
    ("0.5.9", "Llama", "a100", SGL, NOT_HIT, "LlamaForCausalLM has no window layers"),
    ("0.5.9", "gpt-oss", "a100", SGL + "--attention-backend flashinfer", POSSIBLE, "not read"),
    ("0.5.9", "Gemma2", None, SGL, POSSIBLE, "needs --gpu"),
    ("0.5.23", "Gemma2", "a100", None, POSSIBLE, "needs the launch command"),
    ("0.5.9", None, "a100", SGL, POSSIBLE, "needs the model's config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"prefill backend": (("flashinfer",), "triton"), "sliding-window layers": (("on",), "off"),
     "prefill with the window": (("missed",), "right")},
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "with_window.begin_forward": "init_forward_metadata guards it",
    "without_window.begin_forward": "the engine's side of that guard",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention-backend": "flashinfer", "model": "windows"}
