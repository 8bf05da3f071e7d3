"""Rows of sglang.preempted-twice-freed for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import SGL

_PRIORITIES = SGL + "--enable-priority-scheduling"
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.8", "Llama", "h100", _PRIORITIES, HIT, "enable-priority-scheduling"),
    ("0.5.3", "gpt-oss", "h100", _PRIORITIES, HIT, "enable-priority-scheduling"),
    ("0.5.8", "Llama", "h100", SGL, NOT_HIT, "enable-priority-scheduling"),
    ("0.5.8", "Llama", "h100", _PRIORITIES + " --disaggregation-mode prefill", NOT_HIT, "disaggregation-mode prefill"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"priority scheduling": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "none of its requests has a priority"
RUN_AS_IT_IS = "the engine chooses and preempts as it does, among requests that run"
