"""Rows of vllm.dcp-mamba-drafts for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import DRAFTS_DCP, MTP, VLLM

_DRAFTS = DRAFTS_DCP + "FLASH_ATTN"
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.33.0", "Nemotron", "h100", _DRAFTS, HIT, "decode context parallel size: 2"),
    ("0.19.0", "Nemotron", "h100", _DRAFTS, HIT, "NemotronHForCausalLM has layers of Mamba2"),
    ("0.33.0", "Nemotron", "h100", MTP, NOT_HIT, "decode context parallel size: 1"),
    ("0.33.0", "Nemotron", "h100", VLLM + "-dcp 2", NOT_HIT, "speculative decoding: off"),
    ("0.33.0", "Next", "h100", _DRAFTS, NOT_HIT, "Mamba2 layers: off"),
    ("0.33.0", None, "h100", _DRAFTS, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"Mamba2 layers": (("on",), "off"), "decode context parallel size": ((2, 8), 1), "speculative decoding": (("on",), "off")},
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"recurrent": "mamba2", "speculative-method": "mtp", "decode-context-parallel-size": 2}
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "it gives the engine's own threshold, which the builder has without decode context parallelism"
