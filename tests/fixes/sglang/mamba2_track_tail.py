"""Rows of sglang.mamba2-track-tail for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.16", "Nemotron", "h100", SGL, HIT, "CUDA graphs: on (no --disable-cuda-graph"),
    ("0.5.16", "Nemotron", "h100", SGL + "--disable-cuda-graph", NOT_HIT, "CUDA graphs: off"),
    ("0.5.16", "Nemotron", "h100", SGL + "--cuda-graph-config {}", POSSIBLE, "may turn them off"),
    ("0.5.16", "Nemotron", "h100", SGL + "--disable-radix-cache", NOT_HIT, "--disable-radix"),
    ("0.5.16", "Nemotron", "h100", None, POSSIBLE, "needs the launch command"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"Mamba2 layers": (("on",), "off"), "tracked Mamba states": (("on",), "off"), "CUDA graphs": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "model": "hybrid",
    "mamba-radix-cache-strategy": "extra_buffer",
    "disable-radix-cache": False,
    "disable-cuda-graph": False,
}
