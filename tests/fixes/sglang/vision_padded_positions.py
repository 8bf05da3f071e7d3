"""Rows of sglang.vision-padded-positions for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import DP, SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.1", "Qwen-VL", "h100", DP, HIT, "--dp-size 8"),
    ("0.5.8.post1", "Qwen-VL", "mi300x", DP, HIT, "--enable-dp-attention"),
    ("0.5.8", "Qwen-VL", "h100", SGL + "--tp-size 8 --moe-a2a-backend deepep", HIT, "--moe-a2a-backend deepep"),
    ("0.5.8", "Qwen-VL", "h100", SGL + "--tp-size 8 --moe-dense-tp-size 1", HIT, "--moe-dense-tp-size 1"),
    ("0.5.8", "Qwen-VL", "h100", SGL + "--tp-size 8 --dp-size 8", NOT_HIT, "no --enable-dp-attention"),
    ("0.5.8", "Qwen-VL", "h100", SGL + "--tp-size 8 --enable-dp-attention", NOT_HIT, "no --dp-size"),
    ("0.5.8", "R1", "h100", DP, NOT_HIT, "no mrope_section"),
    ("0.5.8", None, "h100", DP, POSSIBLE, "config.json"),
    ("0.5.8", "Qwen-VL", "h100", None, POSSIBLE, "needs the launch command"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"M-RoPE": (("on",), "off"), "batches that ranks share": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its servers have one rank, and no padding"
RUN_AS_IT_IS = "it pads a batch as it is padded, without the positions, which get their columns behind it"
