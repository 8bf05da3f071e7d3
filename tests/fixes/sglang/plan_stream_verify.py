"""Rows of sglang.plan-stream-verify for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

_EAGLE = SGL + "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
_PLANS, _V2 = "SGLANG_ENABLE_OVERLAP_PLAN_STREAM=1 ", "SGLANG_ENABLE_SPEC_V2=1 "

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "Llama", "h100", _PLANS + _V2 + _EAGLE, HIT, "SGLANG_ENABLE_OVERLAP_PLAN_STREAM"),
    ("0.5.9", "Llama", "h100", _PLANS + _EAGLE, NOT_HIT, "SGLANG_ENABLE_SPEC_V2"),
    ("0.5.19", "Llama", "mi300x", _PLANS + _EAGLE, HIT, "SGLANG_ENABLE_OVERLAP_PLAN_STREAM"),
    ("0.5.19", "Llama", "h100", _PLANS + _EAGLE + "--disaggregation-mode prefill", NOT_HIT, "--disaggregation-mode"),
    ("0.5.19", "Llama", "h100", _PLANS + _EAGLE + "--enable-multi-layer-eagle", HIT, "SGLANG_ENABLE_OVERLAP_PLAN_STREAM"),
    ("0.5.19", "Llama", "h100", _EAGLE, NOT_HIT, "no SGLANG_ENABLE_OVERLAP_PLAN_STREAM"),
    ("0.5.19", "Llama", "h100", _PLANS + SGL, NOT_HIT, "speculative algorithm"),
    ("0.5.9", "Llama", "h100", _PLANS + _EAGLE + "--enable-multi-layer-eagle", NOT_HIT, "SGLANG_ENABLE_SPEC_V2"),
    ("0.5.13", "Llama", "h100", _PLANS + SGL + "--speculative-algorithm FROZEN_KV_MTP", NOT_HIT, "FROZEN_KV_MTP"),
    ("0.5.14", "Llama", "h100", _PLANS + SGL + "--speculative-algorithm FROZEN_KV_MTP", HIT, "FROZEN_KV_MTP"),
    ("0.5.4", "Llama", "h100", _PLANS + _EAGLE + "--enable-beta-spec", HIT, "SGLANG_ENABLE_OVERLAP_PLAN_STREAM"),
    ("0.5.4", "Llama", "h100", _EAGLE + "--enable-beta-spec", NOT_HIT, "no SGLANG_ENABLE_OVERLAP_PLAN_STREAM"),
    ("0.5.4", "Llama", "h100", _PLANS + _EAGLE, NOT_HIT, "--enable-beta-spec"),
    ("0.5.3.post2", "Llama", "h100", _EAGLE + "--enable-beta-spec", HIT, "--enable-beta-spec"),
    ("0.5.3.post2", "Llama", "h100", _EAGLE, NOT_HIT, "--enable-beta-spec"),
    ("0.5.3.post3", "Llama", "h100", SGL + "--enable-beta-spec", NOT_HIT, "speculative algorithm"),
    ("0.5.19", "Llama", "h100", None, POSSIBLE, "needs the launch command"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"verification planned apart": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its streams run one after the other"
RUN_AS_IT_IS = "verification runs as it runs, behind a wait on the GPU"
