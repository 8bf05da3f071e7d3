"""Rows of vllm.ministral3-query-scale for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

_HF = VLLM + "--config-format hf "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.20.0", "Ministral3", "h100", _HF, HIT, "llama_4_scaling_beta in config.json"),
    ("0.33.0", "Ministral3", "h100", _HF + "--max-model-len 16385", HIT, "16385, the original length 16384"),
    ("0.33.0", "Ministral3", "h100", _HF + "--max-model-len 16384", NOT_HIT, "16384, the original length 16384"),
    ("0.33.0", "Ministral3", "h100", _HF + "--max-model-len -1", POSSIBLE, "the original length 16384"),
    ("0.33.0", "Ministral3", "h100", VLLM, POSSIBLE, "params.json"),
    ("0.33.0", "Ministral3", "h100", VLLM + "--config-format mistral", NOT_HIT, "--config-format"),
    ("0.33.0", "Ministral3", "h100", _HF + "--model-impl transformers", NOT_HIT, "--model-impl"),
    ("0.19.1", "Ministral3", "h100", _HF, NOT_HIT, "no Ministral 3 of its own"),
    ("0.33.0", "Llama", "h100", _HF, NOT_HIT, "no llama_4_scaling_beta"),
    ("0.33.0", None, "h100", _HF, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "config.json is read": (("on",), "off"),
        "scaling of queries that is not read": (("on",), "off"),
        "lengths beyond the original of query scaling": (("on",), "off"),
    },
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no Ministral 3 is in the space"
RUN_AS_IT_IS = "a layer and the config's hash are made as they are made; what they give is changed behind them"
