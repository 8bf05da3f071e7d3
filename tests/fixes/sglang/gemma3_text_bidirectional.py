"""Rows of sglang.gemma3-text-bidirectional for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

_WHOLE = SGL + "--attention-backend triton --chunked-prefill-size -1 "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "Gemma3", "h100", _WHOLE + "--disable-cuda-graph", HIT, "Gemma3ForCausalLM"),
    ("0.5.16", "Gemma3-VL", "h100", _WHOLE + "--disable-cuda-graph", HIT, "Gemma3ForConditionalGeneration"),
    ("0.5.16", "Gemma3", "h100",
     _WHOLE + "--cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled", HIT, "prefill without CUDA graphs"),
    ("0.5.16", "Gemma3", "h100", _WHOLE + "--cuda-graph-backend-decode disabled", POSSIBLE, "whether prefill"),
    ("0.5.9", "Gemma3", "h100", _WHOLE, NOT_HIT, "--disable-cuda-graph"),
    ("0.5.9", "Gemma3", "h100", SGL + "--attention-backend triton --disable-cuda-graph --chunked-prefill-size 8192", NOT_HIT,
     "--chunked-prefill-size"),
    ("0.5.9", "Gemma3", "h100", SGL + "--attention-backend fa3 --disable-cuda-graph --chunked-prefill-size -1", NOT_HIT, "fa3"),
    ("0.5.9", "Gemma2", "h100", _WHOLE + "--disable-cuda-graph", NOT_HIT, "Gemma2ForCausalLM"),
    ("0.5.9", None, "h100", _WHOLE + "--disable-cuda-graph", POSSIBLE, "config.json"),
    ("0.5.9", "Gemma3", "h100", None, POSSIBLE, "needs the launch command"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "Gemma 3 that writes text": (("on",), "off"),
        "prefill backend": (("triton",), "fa3"),
        "CUDA graphs of any phase": (("off",), "on"),
        "prompts in chunks": (("off",), "on"),
    },
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its prompts come in chunks"
