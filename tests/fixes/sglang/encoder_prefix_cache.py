"""Rows of sglang.encoder-prefix-cache for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.23", "BERT", "h100", SGL, HIT, "BertModel"),
    ("0.5.1", "BERT", None, SGL + "--disable-radix-cache", HIT, "chunk"),
    ("0.5.9", "BERT", "h100", SGL + "--disable-radix-cache --chunked-prefill-size -1", NOT_HIT, "disable-radix-cache"),
    ("0.5.9", "BERT", "h100", SGL + "--chunked-prefill-size -1", HIT, "BertModel"),
    ("0.5.9", "Llama", "h100", SGL + "--is-embedding", NOT_HIT, "LlamaForCausalLM"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"architecture": (("BertModel", "XLMRobertaModel"), "MistralModel"), "cached prefix": (("on",), "off")}]
#: Place of a function that the engine gets without a guard -> why it needs none
UNGUARDED = {"switch_off._no": "it says False"}
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its models generate, and are no encoders"
RUN_AS_IT_IS = "the engine's handling of a text runs as it is, with the server's caches switched off"
