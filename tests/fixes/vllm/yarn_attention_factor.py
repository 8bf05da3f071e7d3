"""Rows of vllm.yarn-attention-factor for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

_HF = VLLM + "--config-format hf "
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.29.0", "Ministral3", "h100", _HF, HIT, "config.json asks for 1, and not for 1.277"),
    ("0.29.0", "Ministral3", "h100", VLLM, POSSIBLE, "params.json"),
    ("0.29.0", "Ministral3", "h100", VLLM + "--config-format mistral", NOT_HIT, "--config-format"),
    ("0.29.0", "Ministral3", "h100", _HF + "--model-impl transformers", NOT_HIT, "--model-impl"),
    ("0.10.0", "gpt-oss", "h100", VLLM, NOT_HIT, "no attention factor of its own"),
    ("0.20.0", "R1", "h100", VLLM, NOT_HIT, "a YaRN of their own"),
    ("0.20.0", "Llama", "h100", VLLM, NOT_HIT, "no attention factor of its own"),
    ("0.20.0", None, "h100", VLLM, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"config.json is read": (("on",), "off"), "own attention factor of YaRN": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "a table that is made while a model is loaded, which the space's models do not load"
RUN_AS_IT_IS = "the embedding's constructor runs as it is; the table that it leaves is written anew"
