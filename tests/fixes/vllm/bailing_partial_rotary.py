"""Rows of vllm.bailing-partial-rotary for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.22.1", "Ling-flash", "h100", VLLM, HIT, "partial_rotary_factor 0.5 and no rotary_dim"),
    ("0.13.0", "Ling-flash", None, VLLM, HIT, "partial_rotary_factor 0.5 and no rotary_dim"),
    ("0.22.1", "Ling-saved", "h100", VLLM, HIT, "partial_rotary_factor 0.5 and no rotary_dim"),
    ("0.33.0", "Ling-saved", "h100", VLLM, HIT, "partial_rotary_factor 0.5 and no rotary_dim"),
    ("0.33.0", "Ling-flash", "h100", VLLM, POSSIBLE, "reads it up to transformers 5.19"),
    ("0.33.0", "Ling-named", "h100", VLLM, NOT_HIT, "rotary_dim 64"),
    ("0.22.1", "Ling-named", "h100", VLLM, NOT_HIT, "rotary_dim 64"),
    ("0.22.1", "Ling-flash", "h100", VLLM + """--hf-overrides '{"rotary_dim": 64}'""", NOT_HIT, "rotary_dim 64"),
    ("0.22.1", "Llama", "h100", VLLM, NOT_HIT, "architecture"),
    ("0.22.1", None, "h100", VLLM, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {
        "architecture": (("BailingMoeForCausalLM", "BailingMoeV2ForCausalLM", "SarvamMoEForCausalLM"), "LlamaForCausalLM"),
        "share of a head that is rotated": (("not read",), "read"),
    }
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no Ling is in the space"
RUN_AS_IT_IS = "a layer and the config's hash are made as they are made; a width stands in the model's config before"
