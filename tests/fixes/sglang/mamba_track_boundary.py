"""Rows of sglang.mamba-track-boundary for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.14", "Next", "h100", SGL, HIT, "turns: on (no --mamba-radix"),
    ("0.5.17", "3.5", "h100", SGL, HIT, "recurrent layers: on"),
    ("0.5.13", "Next", "h100", SGL, NOT_HIT, "no_buffer before 0.5.14"),
    ("0.5.13", "Nemotron", "h100", SGL + "--mamba-scheduler-strategy extra_buffer", HIT, "extra_buffer"),
    ("0.5.14", "Next", "h100", SGL + "--disable-overlap-schedule", NOT_HIT, "--disable-overlap"),
    ("0.5.14", "Next", "h100", SGL + "--disable-radix-cache", NOT_HIT, "--disable-radix"),
    ("0.5.14", "Next", "h100", SGL + "--mamba-radix-cache-strategy no_buffer", NOT_HIT, "no_buffer"),
    ("0.5.14", "Next", "h100", SGL + "--linear-attn-backend cutedsl", NOT_HIT, "cutedsl"),
    ("0.5.14", "Next", "h100", SGL + "--speculative-algorithm NEXTN", NOT_HIT, "speculative decoding: on"),
    ("0.5.16", "Granite", "h100", SGL, NOT_HIT, "without mamba in layer_types"),
    ("0.5.14", "Llama", "h100", SGL, NOT_HIT, "recurrent layers: off"),
    ("0.5.14", "Next", "h100", None, POSSIBLE, "needs the launch command"),
    ("0.5.14", None, "h100", SGL, POSSIBLE, "needs the model's config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"recurrent layers": (("on",), "off"), "states kept by turns": (("on",), "off"),
     "speculative decoding": (("off",), "on")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "model": "hybrid",
    "mamba-radix-cache-strategy": "extra_buffer",
    "disable-radix-cache": False,
    "disable-overlap-schedule": False,
    "mamba-track-interval": 16,
}
