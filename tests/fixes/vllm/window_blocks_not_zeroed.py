"""Rows of vllm.window-blocks-not-zeroed for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import FP8, VLLM

_V1 = "VLLM_USE_V2_MODEL_RUNNER=0 "
_ON = "--attention-backend FLASHINFER "

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.26.0", "Next-windows", "b200", _V1 + FP8 + _ON, HIT, "sliding"),
    ("0.27.1", "Next", "b200", _V1 + FP8 + _ON + "-sc.method=dflash -sc.model=d", POSSIBLE, "drafter's config.json"),
    ("0.27.1", "Next", "b200", _V1 + FP8 + _ON, NOT_HIT, "sliding"),
    ("0.26.0", "Next-windows", "b200", _V1 + VLLM + _ON, NOT_HIT, "kv-cache-dtype"),
    ("0.26.0", "Next-windows", "h100", _V1 + FP8 + _ON, NOT_HIT, "compute capability"),
    ("0.26.0", "Next-windows", "b200", _V1 + FP8 + "--attention-backend TRITON_ATTN", NOT_HIT, "TRITON_ATTN"),
    ("0.26.0", "Gemma3", "b200", _V1 + FP8 + _ON, NOT_HIT, "recurrent"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "recurrent layers": (("on",), "off"), "KV cache dtype": (("fp8", "fp8_e4m3", "fp8_e5m2"), "auto"),
        "attention backend": (("FLASHINFER",), "TRITON_ATTN"), "compute capability": ((100, 103), 90),
        "windows in the model or its drafter": (("on",), "off"), "model runner": (("V1",), "V2"),
    },
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "a pool in which blocks change owners, which no setting brings"
#: Functions that the target calls need no witness
RUN_AS_IT_IS = "it runs the update of requests as it is; which blocks the engine clears, and who clears them, are witnesses"
