"""Rows of sglang.short-chunk-hang for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

_MODE = SGL + "--enable-deterministic-inference --attention-backend {} "
_TRITON, _FLASHINFER, _FA3 = map(_MODE.format, ("triton", "flashinfer", "fa3"))
_SPREAD = "--chunked-prefill-size 8192 --tp 4 --dp-size 4 "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.18", "Llama", "h100", _TRITON + "--chunked-prefill-size 128", HIT, "128, aligned to 4096"),
    ("0.5.9", "Llama", "h100", _FLASHINFER + _SPREAD + "--enable-dp-attention", HIT, "8192, aligned"),
    ("0.5.9", "Llama", "h100", _FLASHINFER + _SPREAD, NOT_HIT, "8192, aligned"),
    ("0.5.9", "Llama", "h100", _FLASHINFER + "--chunked-prefill-size -1", NOT_HIT, "-1"),
    ("0.5.9", "Llama", "h100", _FA3 + "--chunked-prefill-size 128", NOT_HIT, "end anywhere"),
    ("0.5.17", "Llama", "h100", _FA3 + "--chunked-prefill-size 128 --prefill-attention-backend triton", NOT_HIT, "of fa3 end"),
    ("0.5.18", "Llama", "h100", _FA3 + "--chunked-prefill-size 128 --prefill-attention-backend triton", HIT, "aligned to 4096"),
    ("0.5.9", "Llama", "rtx4090", _TRITON, POSSIBLE, "memory of the GPU"),
    ("0.5.9", "Llama", None, _TRITON, POSSIBLE, "--gpu"),
    ("0.5.9", "Llama", "h100", "SGLANG_TRITON_PREFILL_TRUNCATION_ALIGN_SIZE=64 " + _TRITON + "--chunked-prefill-size 128",
     NOT_HIT, "aligned to 64"),
    ("0.5.9", "Llama", "h100", SGL + "--chunked-prefill-size 128 --attention-backend triton", NOT_HIT, "deterministic"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"deterministic inference": (("on",), "off"), "chunk shorter than its alignment": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its servers are not deterministic"
RUN_AS_IT_IS = "what the engine sets is changed once it has returned"
