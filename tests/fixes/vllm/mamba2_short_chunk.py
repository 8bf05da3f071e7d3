"""Rows of vllm.mamba2-short-chunk for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import MTP, VLLM

_NGRAM = VLLM + "--speculative-config.method ngram --speculative-config.num_speculative_tokens 3 "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.17.0", "Nemotron", "h100", _NGRAM, HIT, "NemotronHForCausalLM has layers of Mamba2"),
    ("0.18.1", "Nemotron", "h100", MTP, HIT, "speculative decoding: on (--speculative-config)"),
    ("0.18.1", "Nemotron", "h100", VLLM, NOT_HIT, "speculative decoding: off"),
    ("0.18.1", "Llama", "h100", _NGRAM, NOT_HIT, "Mamba2"),
    ("0.18.1", None, "h100", _NGRAM, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"Mamba2 layers": (("on",), "off"), "speculative decoding": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no model with Mamba2 is in the space"
#: Why functions that the engine's own code calls here need no witness
RUN_AS_IT_IS = "runner and builder sort, pad and plan as in a step with a longer prompt"
