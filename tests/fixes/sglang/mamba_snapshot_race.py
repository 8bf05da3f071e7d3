"""Rows of sglang.mamba-snapshot-race for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

_BUFFER = SGL + "--mamba-scheduler-strategy extra_buffer "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.9", "Next", "h100", _BUFFER, HIT, "tracked Mamba states: on"),
    ("0.5.12", "Next", "h100", _BUFFER + "--disaggregation-mode prefill", HIT, "prompts in chunks: on"),
    ("0.5.9", "Next", "h100", _BUFFER + "--chunked-prefill-size 2048", HIT, "chunked-prefill-size"),
    ("0.5.9", "Next", "h100", SGL, NOT_HIT, "tracked Mamba states: off"),
    ("0.5.9", "Next", "h100", _BUFFER + "--chunked-prefill-size -1", NOT_HIT, "prompts in chunks: off"),
    ("0.5.9", "Next", "h100", _BUFFER + "--disable-overlap-schedule", NOT_HIT, "disable-overlap-schedule"),
    ("0.5.9", "Next", "h100", _BUFFER + "--disable-radix-cache", NOT_HIT, "disable-radix-cache"),
    ("0.5.9", "Next", "h100", _BUFFER + "--disaggregation-mode decode", NOT_HIT, "decode"),
    ("0.5.9", "Next", "h100", _BUFFER + "--pp-size 2", NOT_HIT, "pp-size 2"),
    ("0.5.9", "Llama", "h100", _BUFFER, NOT_HIT, "recurrent layers: off"),
    ("0.5.9", None, "h100", _BUFFER, POSSIBLE, "config.json"),
]  # fmt: skip
_ALL = {
    "recurrent layers": (("on",), "off"), "tracked Mamba states": (("on",), "off"), "kept recurrent states": (("on",), "off"),
    "steps overlap": (("on",), "off"), "prompts in chunks": (("on",), "off"),
}  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{**_ALL, "speculative decoding": (("off",), "on")}, {**_ALL, "spec v2": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its GPU is never a chunk behind the host while a state is copied"
RUN_AS_IT_IS = "the engine chooses the next batch as it does, on a stream that waits first"
