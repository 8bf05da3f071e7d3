"""Rows of sglang.mamba-freed-verify for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import NGRAM, SGL, SPEC

_EXTRA = "--mamba-radix-cache-strategy extra_buffer "
_BLOCK = SGL + "--speculative-algorithm DFLASH " + _EXTRA
_WAITING = "SGLANG_DISABLE_CONSECUTIVE_PREFILL_OVERLAP=1 "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.14", "Next", "h100", SPEC + _EXTRA, HIT, "EAGLE"),
    ("0.5.13", "Next", "h100", SPEC + "--mamba-scheduler-strategy extra_buffer", HIT, "EAGLE"),
    ("0.5.16", "3.5", "h100", NGRAM + _EXTRA, HIT, "NGRAM"),
    ("0.5.21", "Next", "h100", NGRAM + _EXTRA, HIT, "NGRAM"),
    ("0.5.21", "Next", "h100", _WAITING + SPEC + _EXTRA + "--enable-dp-attention", HIT, "CONSECUTIVE_PREFILL"),
    ("0.5.14", "Next", "h100", _BLOCK, HIT, "DFLASH"),
    ("0.5.13", "Next", "h100", NGRAM + "--mamba-scheduler-strategy extra_buffer", NOT_HIT, "no overlap"),
    ("0.5.17", "Next", "h100", SPEC + _EXTRA, NOT_HIT, "takes a grammar into the verification"),
    ("0.5.17", "Next", "h100", _WAITING + SPEC + _EXTRA, NOT_HIT, "takes a grammar into the verification"),
    ("0.5.14", "Next", "h100", SPEC + _EXTRA + "--grammar-backend none", NOT_HIT, "--grammar-backend"),
    ("0.5.14", "Next", "h100", SPEC + _EXTRA + "--disable-overlap-schedule", NOT_HIT, "--disable-overlap"),
    ("0.5.14", "Next", "h100", SPEC + _EXTRA + "--disaggregation-mode prefill", NOT_HIT, "--disaggregation-mode"),
    ("0.5.14", "Next", "h100", SPEC + "--disable-radix-cache", NOT_HIT, "--disable-radix"),
    ("0.5.14", "Next", "h100", SGL + _EXTRA, NOT_HIT, "speculative algorithm: none"),
    ("0.5.14", "Llama", "h100", SPEC, NOT_HIT, "recurrent layers: off"),
    ("0.5.21", "Next", "h100", SGL + "--speculative-algorithm UNO " + _EXTRA, POSSIBLE, "was not read"),
    ("0.5.14", None, "h100", SPEC + _EXTRA, POSSIBLE, "config.json"),
    ("0.5.14", "Next", "h100", None, POSSIBLE, "needs the launch command"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"recurrent layers": (("on",), "off"), "tracked Mamba states": (("on",), "off"),
     "requests end before they are verified": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "drafts of a hybrid model with structured output, which its space does not have"
