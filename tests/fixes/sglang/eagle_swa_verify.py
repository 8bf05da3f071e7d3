"""Rows of sglang.eagle-swa-verify for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL, SPEC, TREES

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.23", "Gemma3", "a100", SPEC, HIT, "verify backend: flashinfer (default of sglang 0.5.23"),
    ("0.5.23", "Gemma3", "h100", TREES + "--attention-backend flashinfer", HIT, "algorithm: EAGLE3"),
    ("0.5.14", "Gemma2", "l40s", SGL + "--speculative-algorithm NGRAM", HIT, "algorithm: NGRAM"),
    ("0.5.23", "Gemma3", "a100", SGL, NOT_HIT, "speculative algorithm: none"),
    ("0.5.23", "Gemma3", "a100", SGL + "--speculative-algorithm DFLASH", NOT_HIT, "DFLASH"),
    ("0.5.23", "Gemma3", "a100", SPEC + "--attention-backend triton", NOT_HIT, "backend: triton"),
    ("0.5.23", "Gemma3", "a100", SPEC + "--decode-attention-backend triton --speculative-attention-mode decode", NOT_HIT,
     "verify backend: triton"),
    ("0.5.23", "Llama", "a100", SPEC, NOT_HIT, "LlamaForCausalLM has no window layers"),
    ("0.5.23", "Gemma2", "a100", None, POSSIBLE, "needs the launch command"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"speculative algorithm": (("EAGLE", "EAGLE3", "STANDALONE", "NGRAM", "FROZEN_KV_MTP"), "DFLASH"),
     "verify backend": (("flashinfer",), "triton"), "sliding-window layers": (("on",), "off")},
    {"speculative algorithm": (("EAGLE", "EAGLE3", "STANDALONE", "NGRAM", "FROZEN_KV_MTP"), "DFLASH"),
     "draft extend backend": (("flashinfer",), "triton"), "sliding-window layers": (("on",), "off")},
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "windowed.begin_forward": "update_sliding_window guards it",
    "as_it_was.begin_forward": "the engine's side of that guard",
    "call_with_the_planned_window.forward": "one look-up before FlashInfer's own call, around which no correction of this fix "
    "stands: an error of FlashInfer's is charged to nobody",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention-backend": "flashinfer", "model": "windows", "speculative-algorithm": "EAGLE"}
