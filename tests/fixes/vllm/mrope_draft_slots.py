"""Rows of vllm.mrope-draft-slots for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import DFLASH_METHOD, MTP_METHOD, ONE_DRAFT, VLLM

_MTP = VLLM + MTP_METHOD

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.19.1", "Qwen-VL", "h100", _MTP, HIT, "config.json has an mrope_section"),
    ("0.33.0", "Qwen-VL", "h100", "VLLM_USE_V2_MODEL_RUNNER=0 " + _MTP, HIT, "draft tokens of a step: several"),
    ("0.33.0", "Qwen-VL", "h100", "VLLM_USE_V2_MODEL_RUNNER=1 " + _MTP, NOT_HIT, "model runner: V2"),
    ("0.19.1", "Llama", "h100", _MTP, NOT_HIT, "config.json has no mrope_section"),
    ("0.19.1", "Qwen-VL", "h100", VLLM + "-sc.method=mtp -sc.num_speculative_tokens=1", NOT_HIT, "of a step: one"),
    ("0.19.1", "Qwen-VL", "h100", VLLM + ONE_DRAFT, NOT_HIT, "drafts from hidden states: off"),
    ("0.19.1", "Qwen-VL", "h100", VLLM + DFLASH_METHOD, NOT_HIT, "dflash"),
    ("0.19.1", "Qwen-VL", "h100", VLLM, NOT_HIT, "speculative"),
    ("0.19.1", None, "h100", _MTP, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "M-RoPE": (("on",), "off"),
        "model runner": (("V1",), "V2"),
        "drafts from hidden states": (("on",), "off"),
        "draft tokens of a step": (("several",), "one"),
        "drafts made one by one": (("on",), "off"),
    },
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no model with M-RoPE is in the space"
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "it runs the engine's drafter as it is, with another function for the slots of a step"
#: Functions that the engine gets without a guard, and why
UNGUARDED = {
    "by_index.stepped": "with_indices hands it to call.guard",
}
