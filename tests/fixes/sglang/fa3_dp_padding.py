"""Rows of sglang.fa3-dp-padding for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

_DP = SGL + "--enable-dp-attention --tp-size 8 --dp-size "
_V2 = _DP + "8 --attention-backend fa3 --moe-a2a-backend deepep_v2"
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "R1", "h100", _DP + "4", HIT, "--dp-size 4"),
    ("0.5.9", "Llama", "h100", SGL + "--tp-size 4 --moe-a2a-backend deepep", HIT, "--tp-size 4"),
    ("0.5.2", "Llama", "h100", _DP + "8 --attention-backend triton", HIT, "padded to the longest"),
    ("0.5.9", "Llama", "h100", _DP + "8", NOT_HIT, "--tp-size 8, --dp-size 8"),
    ("0.5.17", "R1", "h100", _DP + "8 --attention-backend fa3 --moe-a2a-backend pplx", HIT, "--moe-a2a-backend pplx"),
    ("0.5.19", "R1", "h100", "SGLANG_DEEPEP_V2_FORCE_MAX_LEN=1 " + _V2, HIT, "--moe-a2a-backend deepep_v2"),
    ("0.5.19", "R1", "h100", _V2, NOT_HIT, "--tp-size 8, --dp-size 8"),
    ("0.5.14", "Nemotron-pattern", "h100", _DP + "8 --attention-backend fa3", POSSIBLE, "while a rank is idle"),
    ("0.5.9", "Llama", "h100", SGL + "--tp-size 8", NOT_HIT, "no --enable-dp-attention"),
    ("0.5.9", "Llama", "h100", SGL + "--tp-size 8 --moe-a2a-backend none", NOT_HIT, "no --enable-dp-attention"),
    ("0.5.9", "Llama", "h100", _DP + "4 --attention-backend flashinfer", NOT_HIT, "flashinfer (--attention-backend)"),
    ("0.5.9", "Llama", "h100", None, POSSIBLE, "needs the launch command"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"prefill backend": (("fa3", "triton", "trtllm_mha"), "flashinfer"), "padded prefills": (("on",), "off")},
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its servers have one rank, and no padding"
