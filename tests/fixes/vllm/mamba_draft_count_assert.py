"""Rows of vllm.mamba-draft-count-assert for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import CACHED, MTP_METHOD, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.20.0", "Next", "h100", CACHED + MTP_METHOD, HIT, "cache mode of states: align"),
    ("0.17.0", "Next", "h100", CACHED + "-sc.method=ngram", HIT, "cache mode of states: align"),
    ("0.20.0", "Next", "h100", VLLM + MTP_METHOD, NOT_HIT, "no --enable-prefix-caching"),
    ("0.20.0", "Next", "h100", CACHED, NOT_HIT, "speculative"),
    ("0.20.0", "Llama", "h100", CACHED + MTP_METHOD, NOT_HIT, "no layers with a recurrent state"),
    ("0.20.0", None, "h100", CACHED + MTP_METHOD, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "recurrent layers": (("on",), "off"), "cache mode of states": (("align",), "none"),
        "speculative decoding": (("on",), "off"),
    },
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no model with a recurrent state is in the space"
