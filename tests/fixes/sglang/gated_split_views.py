"""Rows of sglang.gated-split-views for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.10", "3.5-27B", "h100", SGL, HIT, "gates that are views: on (48 heads of values, 16 of keys"),
    ("0.5.10.post1", "3.5-27B", "mi300x", SGL + "--attention-backend triton", HIT, "48 heads"),
    ("0.5.10", "3.5-27B", "h100", SGL + "--device npu", NOT_HIT, "--device"),
    ("0.5.10", "3.5", "h100", SGL, POSSIBLE, "linear_num_key_heads"),
    ("0.5.10", "Next", "h100", SGL, NOT_HIT, "architecture Qwen3Next"),
    ("0.5.10", None, "h100", SGL, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"gates that are views": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "gated linear attention: its hybrid model has Mamba2 layers"
