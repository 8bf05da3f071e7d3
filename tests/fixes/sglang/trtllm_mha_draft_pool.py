"""Rows of sglang.trtllm-mha-draft-pool for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import SGL

_EAGLE = SGL + "--speculative-algorithm EAGLE3 --speculative-draft-model-path d "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.10", "gpt-oss", "b200", _EAGLE, HIT, "trtllm_mha"),
    ("0.5.10", "gpt-oss", "b200", _EAGLE + "--speculative-draft-attention-backend triton", NOT_HIT, "triton"),
    ("0.5.10", "gpt-oss", "b200", _EAGLE + "--disable-hybrid-swa-memory", NOT_HIT, "--disable-hybrid-swa-memory"),
    ("0.5.10", "gpt-oss", "b200", SGL, NOT_HIT, "--speculative-algorithm"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "sliding-window KV pool": (("on",), "off"),
        "draft decode backend": (("trtllm_mha",), "triton"),
        "speculative algorithm": (("EAGLE", "EAGLE3", "STANDALONE"), "none"),
    },
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its servers have no Blackwell"
