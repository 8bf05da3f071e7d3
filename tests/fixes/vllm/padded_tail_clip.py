"""Rows of vllm.padded-tail-clip for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import CACHED, MTP_METHOD, ONE_DRAFT

_MTP, _NGRAM = CACHED + MTP_METHOD, CACHED + ONE_DRAFT

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.28.0", "Next", "h100", _MTP, HIT, "ends each chunk with its block"),
    ("0.25.0", "Next", "h100", _NGRAM, HIT, "ngram"),
    ("0.26.0", "Next", "h100", _MTP, NOT_HIT, "mtp"),
    ("0.28.0", "Next", "h100", _MTP + "--no-enable-prefix-caching", NOT_HIT, "prefix-caching"),
    ("0.28.0", "Next", "h100", CACHED, NOT_HIT, "speculative decoding: off"),
    ("0.28.0", "Llama", "h100", _MTP, NOT_HIT, "no layers with a recurrent state"),
    ("0.28.0", None, "h100", _MTP, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "recurrent layers": (("on",), "off"),
        "speculative decoding": (("on",), "off"),
        "drafts by batch size": (("off",), "on"),
        "cache mode of states": (("align",), "none"),
        "last tokens that end with a block": (("on",), "off"),
    },
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "a connector that brings all of a prompt but a token at the end of a block, which no setting has"
