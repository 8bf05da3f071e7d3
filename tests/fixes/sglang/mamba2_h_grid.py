"""Rows of sglang.mamba2-h-grid for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.19", "Nemotron", "h100", SGL, HIT, "tracked Mamba states: on (no --disable-overlap"),
    ("0.5.13", "Nemotron", "h100", SGL, NOT_HIT, "states: off (default of sglang 0.5.13"),
    ("0.5.13", "Nemotron", "h100", SGL + "--mamba-scheduler-strategy extra_buffer", HIT, "on ("),
    ("0.5.19", "Nemotron", "h100", SGL + "--disable-radix-cache", NOT_HIT, "--disable-radix"),
    ("0.5.19", "Nemotron", "b200", SGL + "--speculative-algorithm EAGLE --disable-overlap-schedule", POSSIBLE,
     "with speculation some GPUs track them"),
    ("0.5.19", "Next", "h100", SGL, NOT_HIT, "Mamba2 layers: off (architecture Qwen3Next"),
    ("0.5.19", None, "h100", SGL, POSSIBLE, "needs the model's config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"Mamba2 layers": (("on",), "off"), "tracked Mamba states": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "model": "hybrid",
    "mamba-radix-cache-strategy": "extra_buffer",
    "disable-radix-cache": False,
    "chunked-prefill-size": -1,
    "max-running-requests": 8,
    "max-mamba-cache-size": 64,
}
