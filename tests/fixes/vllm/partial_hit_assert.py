"""Rows of vllm.partial-hit-assert for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import CACHED, DFLASH_METHOD, MTP_METHOD, VLLM

_UNIT = CACHED + "--prefix-match-unit 16 "

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.27.1", "Next-windows", "h100", _UNIT, HIT, "prefix-match-unit"),
    ("0.26.0", "Next-windows", "h100", _UNIT + MTP_METHOD, HIT, "prefix-match-unit"),
    ("0.27.1", "Next-windows", "h100", CACHED, POSSIBLE, "no multiple"),
    ("0.27.1", "Next", "h100", _UNIT + DFLASH_METHOD, POSSIBLE, "a drafter with a sliding window"),
    ("0.27.1", "Next-windows", "h100", _UNIT + "-dcp 2", NOT_HIT, "decode-context-parallel-size"),
    ("0.27.1", "Next", "h100", _UNIT + MTP_METHOD, NOT_HIT, "no layers with a window"),
    ("0.27.1", "Next-windows", "h100", VLLM + "--prefix-match-unit 16 --no-enable-prefix-caching", NOT_HIT, "prefix-caching"),
    ("0.27.1", "Llama", "h100", _UNIT, NOT_HIT, "no layers with a recurrent state"),
    ("0.27.1", None, "h100", _UNIT, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "recurrent layers": (("on",), "off"), "cache mode of states": (("align",), "none"),
        "decode context parallel size": ((1,), 2), "lookups that a window refuses": (("on",), "off"),
    },
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "--prefix-match-unit is not in the space"
#: Why functions that the engine's own calls need no witness
RUN_AS_IT_IS = "it makes a scheduler as it is made, and sets values that the making does not read"
