"""Rows of vllm.dflash-aot-schedule for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import DFLASH, MTP, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.29.0", "R1", "h100", DFLASH + "--attention-backend FLASHMLA", HIT, "FLASHMLA for"),
    ("0.29.0", "R1", "h100", DFLASH.replace("dflash", "dspark"), HIT, "FLASH_ATTN_MLA for the target"),
    ("0.29.0", "R1", "b200", DFLASH, NOT_HIT, "has no FlashAttention 3"),
    ("0.29.0", "Llama", "h100", DFLASH + "--attention-backend FLASH_ATTN", NOT_HIT, "another window"),
    ("0.29.0", "R1", "h100", DFLASH.replace("dflash", "mtp"), NOT_HIT, "drafter: another"),
    ("0.29.0", "R1", "h100", DFLASH.replace("=1", "=0"), NOT_HIT, "model runner: V1"),
    ("0.29.0", "R1", "h100", VLLM, NOT_HIT, "drafter: another"),
    ("0.29.0", "R1", "h100", MTP, POSSIBLE, "without a method"),
    ("0.29.0", "R1", "h100", None, POSSIBLE, "needs the launch command"),
    ("0.29.0", "R1", None, DFLASH, POSSIBLE, "needs --gpu"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"drafter": (("DFlash",), "another"), "model runner": (("V2",), "V1"),
     "schedule of the drafter": (("made ahead",), "none")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "DFlash, which drafts all tokens at once, is not in the space"
