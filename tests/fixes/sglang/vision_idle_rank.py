"""Rows of sglang.vision-idle-rank for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import DP, SGL

_EAGER = "--disable-cuda-graph "

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "Qwen-VL", "h100", DP + _EAGER, HIT, "--dp-size"),
    ("0.5.22", "Qwen-VL", "mi300x", DP + _EAGER, HIT, "--disable-cuda-graph"),
    ("0.5.16", "Qwen-VL", "h100", DP, POSSIBLE, "above the largest graph"),
    ("0.5.16", "Qwen-VL", "h100", SGL + _EAGER + "--tp-size 8 --dp-size 8", NOT_HIT, "--enable-dp-attention"),
    ("0.5.16", "Qwen-VL", "h100", SGL + _EAGER + "--tp-size 8 --enable-dp-attention", NOT_HIT, "--dp-size"),
    ("0.5.16", "R1", "h100", DP + _EAGER, NOT_HIT, "no mrope_section"),
    ("0.5.20", "GLM-4.1V", "h100", DP + _EAGER, HIT, "--disable-cuda-graph"),
    ("0.5.21", "GLM-4.1V", "h100", DP + _EAGER, NOT_HIT, "positions of text"),
    ("0.5.16", None, "h100", DP + _EAGER, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"M-RoPE": (("on",), "off"), "groups of ranks that attend": (("on",), "off"),
     "idle ranks outside CUDA graphs": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its servers have one rank, and no padding"
RUN_AS_IT_IS = "it pads a batch as it is padded, which has three rows of positions then"
