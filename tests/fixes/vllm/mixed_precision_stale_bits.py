"""Rows of vllm.mixed-precision-stale-bits for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import FP8, SKIP, VLLM

_WINDOWS = SKIP + "sliding_window "
_FA = "--attention-backend FLASH_ATTN "

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.26.0", "Gemma3", "h100", FP8 + _WINDOWS + _FA, HIT, "--kv-cache-dtype-skip-layers"),
    ("0.19.0", "Gemma3", "h100", FP8 + SKIP + "0 " + _FA, HIT, "--kv-cache-dtype fp8"),
    ("0.26.0", "Gemma3", "h100", FP8 + _FA, NOT_HIT, "no --kv-cache-dtype-skip-layers"),
    ("0.26.0", "Gemma3", "h100", VLLM + _WINDOWS + _FA, NOT_HIT, "no --kv-cache-dtype"),
    ("0.26.0", "Llama", "h100", FP8 + SKIP + "0 " + _FA, NOT_HIT, "no sliding window"),
    ("0.26.0", "Gemma3", "h100", FP8 + _WINDOWS + _FA + "--disable-hybrid-kv-cache-manager", NOT_HIT, "manager"),
    ("0.26.0", "Next-windows", "h100", FP8 + _WINDOWS + _FA, NOT_HIT, "recurrent layers: on"),
    ("0.26.0", "Gemma3", "h100", FP8 + _WINDOWS + "--attention-backend TRITON_ATTN", NOT_HIT, "TRITON_ATTN"),
    ("0.26.0", "Gemma3", None, FP8 + _WINDOWS, POSSIBLE, "depends on GPU"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "layers of FP8 and others in the KV cache": (("on",), "off"), "sliding-window layers": (("on",), "off"),
        "hybrid KV cache manager": (("on",), "off"), "recurrent layers": (("off",), "on"),
        "attention backend": (("FLASH_ATTN", "FLASHINFER"), "TRITON_ATTN"),
    },
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "a pool in which blocks change owners, which no setting brings"
#: Functions that the target calls need no witness
RUN_AS_IT_IS = "it runs the update of requests as it is; what it launches before, and on what, are witnesses"
