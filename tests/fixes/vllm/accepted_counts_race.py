"""Rows of vllm.accepted-counts-race for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import CACHED, MTP_METHOD, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.22.0", "Next", "h100", VLLM + MTP_METHOD, HIT, "accepted counts on the host: always"),
    ("0.22.0", "Nemotron", "h100", VLLM + MTP_METHOD, HIT, "async scheduling: on"),
    ("0.22.0", "Next", "h100", VLLM, NOT_HIT, "speculative decoding: off"),
    ("0.22.0", "Next", "h100", VLLM + MTP_METHOD + "--no-async-scheduling", NOT_HIT, "async"),
    ("0.22.0", "Llama", "h100", VLLM + MTP_METHOD, NOT_HIT, "no layers with a recurrent state"),
    ("0.22.0", None, "h100", VLLM + MTP_METHOD, POSSIBLE, "config.json"),
    ("0.25.1", "Next", "h100", CACHED + MTP_METHOD, HIT, "host: where states are cached"),
    ("0.25.1", "Next", "h100", VLLM + MTP_METHOD, NOT_HIT, "no --enable-prefix-caching"),
    ("0.25.1", "Nemotron", "h100", CACHED + MTP_METHOD, POSSIBLE, "--mamba-cache-mode"),
    ("0.33.0", "Next", "h100", CACHED + MTP_METHOD, NOT_HIT, "model runner: V2"),
    ("0.31.0", "Next", "h100", "VLLM_USE_V2_MODEL_RUNNER=0 " + CACHED + MTP_METHOD, HIT, "V1 ("),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    *(
        {"recurrent layers": (("on",), "off"), "speculative decoding": (("on",), "off"), "async scheduling": (("on",), "off"),
          "model runner": (("V1",), "V2"), "accepted counts on the host": ((when,), "never"), **more}
        for when, more in (("always", {}),
                           ("where states are cached", {"cached prefixes of a hybrid model": (("on",), "off")}))
    ),
]  # fmt: skip
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {
    "Rows.moved": "the correction calls it",
}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "the former model runner alone has it, and no model with a recurrent state is built on that"
