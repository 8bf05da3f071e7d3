"""Rows of sglang.mamba2-prefill-graph for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import DP, SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.23", "Falcon-H1", "h100", SGL, HIT, "prefill graph with breaks: on"),
    ("0.5.15", "Falcon-H1", "b200", SGL + "--attention-backend triton", HIT, "on"),
    ("0.5.23", "Falcon-H1", "h100", SGL + "--cuda-graph-backend-prefill disabled", NOT_HIT, "disabled"),
    ("0.5.18", "Falcon-H1", "h100", SGL + "--disable-piecewise-cuda-graph", NOT_HIT, "--disable-piecewise"),
    ("0.5.23", "Falcon-H1", "h100", SGL + "--disable-cuda-graph", NOT_HIT, "--disable-cuda-graph"),
    ("0.5.23", "Falcon-H1", "h100", SGL + "--pp-size 2", POSSIBLE, "--pp-size"),
    ("0.5.23", "Falcon-H1", "mi300x", SGL, NOT_HIT, "NVIDIA"),
    ("0.5.23", "Falcon-H1", None, SGL, POSSIBLE, "GPU"),
    ("0.5.23", "Nemotron", "h100", SGL, NOT_HIT, "break of their own: off"),
    ("0.5.18", "Nemotron", "h100", DP, HIT, "--enable-dp-attention"),
    ("0.5.17", "Nemotron", "h100", DP, NOT_HIT, "0.5.17"),
    ("0.5.16", "Nemotron", "h100", DP + "--cuda-graph-backend-prefill breakable", HIT, "breakable"),
    ("0.5.16", "Falcon-H1", "h100", DP, NOT_HIT, "--enable-dp-attention"),
    ("0.5.17", "Falcon-H1", "h100", DP, HIT, "prefill graph with breaks: on"),
    ("0.5.18", "Falcon-H1", "h100", SGL + "--enforce-piecewise-cuda-graph", NOT_HIT, "--enforce-piecewise"),
    ("0.5.18", "Falcon-H1", "h100", SGL + "--disable-cuda-graph --enable-breakable-cuda-graph", HIT, "--enable-breakable"),
    ("0.5.19", "Nemotron", "h100", DP, NOT_HIT, "--enable-dp-attention"),
    ("0.5.23", None, "h100", SGL, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"Mamba2 layers without a break of their own": (("on",), "off"), "prefill graph with breaks": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its space has no model with attention and Mamba2 in one layer"
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "breaking.prepared.eager": "in the break alone: the engine's layer, on rows whose number its metadata has",
    "breaking.forward.eager": "in the break alone: the engine's layer, on rows whose number its metadata has",
    "breaking.forward": "the engine's layer, or its break around what a guarded function prepared",
}
