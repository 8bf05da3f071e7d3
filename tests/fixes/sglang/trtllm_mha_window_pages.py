"""Rows of sglang.trtllm-mha-window-pages for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.8", "Llama4", "b200", SGL, HIT, "trtllm_mha"),
    ("0.5.9", "Llama4", "b200", SGL + "--kv-cache-dtype fp8_e4m3", HIT, "--kv-cache-dtype fp8_e4m3"),
    ("0.5.9", "Llama4", "b200", SGL, NOT_HIT, "sglang 0.5.9"),
    ("0.5.8", "Llama4", "b200", SGL + "--disable-hybrid-swa-memory", NOT_HIT, "--disable-hybrid-swa-memory"),
    ("0.5.8", "Llama4", "b200", SGL + "--attention-backend triton", NOT_HIT, "triton (--attention-backend)"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"prefill backend": (("trtllm_mha",), "triton"), "sliding-window KV pool": (("on",), "off"),
     "slots of the other pool": (("on",), "off")},
    {"decode backend": (("trtllm_mha",), "triton"), "sliding-window KV pool": (("on",), "off"),
     "slots of the other pool": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its servers have no Blackwell"
