"""Rows of sglang.mamba-verify-clear for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import NGRAM, SGL, SPEC

_EAGER = "--disable-cuda-graph "
_EXTRA = "--mamba-scheduler-strategy extra_buffer "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.13", "Next", "h100", SPEC + _EXTRA + _EAGER, HIT, "CUDA graphs"),
    ("0.5.13", "Nemotron", "h100", NGRAM + _EXTRA + _EAGER, HIT, "recurrent layers: on"),
    ("0.5.13", "Next", "h100", SPEC + "--max-running-requests 64 --cuda-graph-max-bs 32", HIT, "--max-running-requests 64"),
    ("0.5.13", "Next", "h100", SPEC + "--max-running-requests 32 --cuda-graph-max-bs 32", NOT_HIT, "--cuda-graph-max-bs 32"),
    ("0.5.13", "Next", "h100", SPEC + _EXTRA, POSSIBLE, "whether more requests run at once"),
    ("0.5.13", "Next", "h100", SPEC + _EAGER + "--disaggregation-mode prefill", NOT_HIT, "prefill"),
    ("0.5.13", "Next", "h100", SGL + _EAGER, NOT_HIT, "speculative"),
    ("0.5.13", "Llama", "h100", SPEC + _EAGER, NOT_HIT, "recurrent layers: off"),
    ("0.5.13", None, "h100", SPEC + _EAGER, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"recurrent layers": (("on",), "off"), "speculative decoding": (("on",), "off"),
     "verification outside CUDA graphs": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "drafts of a hybrid model, which its space does not have"
