"""Rows of vllm.padded-v-merge for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM
from tests.support.ways import MLA, PREFIX

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.25.1", "R1", "a100", VLLM, HIT, "FlashAttention 2 on a100, sm_80"),
    ("0.25.1", "R1", "rtx5090", None, POSSIBLE, "needs the launch command"),
    ("0.25.1", "R1", "h200", VLLM, NOT_HIT, "pads values: off (FlashAttention 3 on h200"),
    ("0.25.1", "R1", "h200", VLLM + "-ac.flash_attn_version=2", HIT, "--attention-config.flash_attn"),
    ("0.25.1", "R1", "h200", VLLM + "-ac.flash_attn_version=x", POSSIBLE, "x is no number"),
    ("0.25.1", "R1", "b200", VLLM, NOT_HIT, "FlashAttention 4 on b200"),
    ("0.25.1", "R1", "b200", "VLLM_BATCH_INVARIANT=1 " + VLLM, HIT, "VLLM_BATCH_INVARIANT"),
    ("0.25.1", None, "b200", VLLM, POSSIBLE, "needs the model's config.json"),
    ("0.25.1", "R1", "mi300x", VLLM, POSSIBLE, "flash_attn or rocm_aiter_fa"),
    ("0.25.1", "Llama", "a100", VLLM, NOT_HIT, "attention: MHA"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"attention": MLA, "cached prefix": PREFIX, "MLA prefill backend": (("flash_attn",), "trtllm_ragged"),
     "FlashAttention pads values": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"attention": "MLA", "attention-backend": "FLASHMLA", "block-size": 64}
