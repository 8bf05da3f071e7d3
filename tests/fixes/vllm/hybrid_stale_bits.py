"""Rows of vllm.hybrid-stale-bits for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import FP8, VLLM

_FLOAT = VLLM + "--mamba-ssm-cache-dtype float32 "
_FA, _TRITON = "VLLM_ATTENTION_BACKEND=FLASH_ATTN ", "VLLM_ATTENTION_BACKEND=TRITON_ATTN "

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.12.0", "Nemotron", "h100", _FLOAT, HIT, "--mamba-ssm-cache-dtype float32"),
    ("0.17.0", "Next", "h100", FP8, HIT, "--kv-cache-dtype"),
    ("0.10.2", "Next", "mi300x", _TRITON + FP8, HIT, "TRITON_ATTN"),
    ("0.17.0", "Next", "h100", VLLM, NOT_HIT, "Qwen3NextForCausalLM"),
    ("0.17.0", "Llama", "h100", FP8, NOT_HIT, "recurrent"),
    ("0.13.0", "Next", "h100", _TRITON + FP8, NOT_HIT, "TRITON_ATTN"),
    ("0.13.0", "Next", "a100", _FA + _FLOAT, NOT_HIT, "clears what is masked"),
    ("0.13.0", "Next", None, _FLOAT, POSSIBLE, "--gpu"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "recurrent layers": (("on",), "off"), "states in another format than KV": (("on",), "off"),
        "attention takes in masked values": (("on",), "off"),
    },
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "a pool in which blocks change owners, which no setting brings"
#: Functions that the target calls need no witness
RUN_AS_IT_IS = "it runs the update of requests as it is; what a block of the pool is, and who clears it, are witnesses"
