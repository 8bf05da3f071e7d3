"""Rows of vllm.stale-draft-placeholders for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import VLLM

_EAGLE = VLLM + "-sc.method=eagle -sc.model=d -sc.num_speculative_tokens=3 "
_V1 = "VLLM_USE_V2_MODEL_RUNNER=0 " + _EAGLE

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.14.0", "Llama", "h100", _EAGLE, HIT, "async scheduling: on"),
    ("0.19.1", "Llama", "h100", _EAGLE, HIT, "speculative decoding: on"),
    ("0.24.0", "Llama", "h100", _V1, HIT, "model runner: V1"),
    ("0.19.1", "Llama", "h100", _EAGLE + "--no-async-scheduling", NOT_HIT, "async scheduling: off"),
    ("0.19.1", "Llama", "h100", _EAGLE + "--tensor-parallel-size 2", NOT_HIT, "tensor parallel size: 2"),
    ("0.19.1", "Llama", "h100", VLLM, NOT_HIT, "speculative decoding: off"),
    ("0.19.1", "Next", "h100", _EAGLE, HIT, "async scheduling: on"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "model runner": (("V1",), "V2"),
        "async scheduling": (("on",), "off"),
        "speculative decoding": (("on",), "off"),
        "tensor parallel size": ((1,), 2),
    }
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "which requests a step leaves out, which the run does not decide: its steps have room for all"
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "it runs behind the choice of a step, and sees requests as those without drafts are"
