"""Rows of sglang.mamba2-initial-state for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.14", "Nemotron", "h100", SGL, HIT, "tracked Mamba states: on (no --disable-o"),
    ("0.5.14", "Nemotron", "h100", SGL + "--mamba-scheduler-strategy extra_buffer", HIT, "on ("),
    ("0.5.14", "Nemotron", "h100", SGL + "--mamba-radix-cache-strategy no_buffer --disable-overlap-schedule", NOT_HIT,
     "no_buffer"),
    ("0.5.14", "Nemotron", "h100", SGL + "--disable-overlap-schedule", NOT_HIT, "states: off"),
    ("0.5.14", "Nemotron", "h100", SGL + "--disable-overlap-schedule --page-size 64", HIT, "p"),
    ("0.5.14", "Nemotron", "h100", SGL + "--disable-radix-cache", NOT_HIT, "--disable-radix"),
    ("0.5.14", "Nemotron", "h100", SGL + "--linear-attn-backend cutedsl", NOT_HIT, "cutedsl"),
    ("0.5.14", "Next", "h100", SGL, NOT_HIT, "Mamba2 layers: off (architecture Qwen3Next"),
    ("0.5.14", "Granite", "h100", SGL, NOT_HIT, "without mamba in layer_types"),
    ("0.5.14", "Nemotron", "h100", None, POSSIBLE, "needs the launch command"),
    ("0.5.14", None, "h100", SGL, POSSIBLE, "needs the model's config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"Mamba2 layers": (("on",), "off"), "tracked Mamba states": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"model": "hybrid", "mamba-radix-cache-strategy": "extra_buffer", "disable-radix-cache": False}
