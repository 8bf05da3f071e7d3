"""Rows of sglang.mixed-chunk-states for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

_MIXED = SGL + "--enable-mixed-chunk "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.14", "Next", "h100", _MIXED, HIT, "--enable-mixed-chunk"),
    ("0.5.22", "Nemotron", "h100", _MIXED, HIT, "mixed chunks: on"),
    ("0.5.9", "Next", "h100", _MIXED + "--mamba-scheduler-strategy extra_buffer", HIT, "extra_buffer"),
    ("0.5.9", "Next", "h100", _MIXED, NOT_HIT, "default of sglang 0.5.9"),
    ("0.5.14", "Next", "h100", SGL, NOT_HIT, "no --enable-mixed-chunk"),
    ("0.5.14", "Next", "h100", _MIXED + "--chunked-prefill-size -1", NOT_HIT, "--chunked-prefill-size"),
    ("0.5.14", "Next", "h100", _MIXED + "--disable-radix-cache", NOT_HIT, "--disable-radix"),
    ("0.5.18", "Next", "h100", _MIXED + "--speculative-algorithm NEXTN", NOT_HIT, "turns --enable-mixed-chunk off"),
    ("0.5.22", "Next", "h100", _MIXED + "--speculative-algorithm NEXTN", POSSIBLE, "some algorithms"),
    ("0.5.14", "Llama", "h100", _MIXED, NOT_HIT, "recurrent layers: off"),
    ("0.5.14", "Next", "h100", None, POSSIBLE, "needs the launch command"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"recurrent layers": (("on",), "off"), "tracked Mamba states": (("on",), "off"), "mixed chunks": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "model": "hybrid",
    "mamba-radix-cache-strategy": "extra_buffer",
    "disable-radix-cache": False,
    "enable-mixed-chunk": True,
}
