"""Rows of vllm.draft-rotary-table for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import NOT_HIT, POSSIBLE
from tests.support.deployments import MTP, VLLM

_V2 = "VLLM_USE_V2_MODEL_RUNNER=1 "
_DRAFTS = _V2 + MTP + "-sc.model=/models/drafter "

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.26.0", "Llama", "h100", _DRAFTS + "-sc.method=eagle3", POSSIBLE, "the drafter's max_position_embeddings"),
    ("0.12.0", "Llama", "h100", _DRAFTS + "-sc.method=eagle", POSSIBLE, "the drafter's max_position_embeddings"),
    ("0.26.0", "Llama", "h100", _DRAFTS, POSSIBLE, "the engine finds the method"),
    ("0.32.0", "Llama", "h100", _DRAFTS + "-sc.method=dflash", POSSIBLE, "the drafter's max_position_embeddings"),
    ("0.27.0", "Llama", "h100", _DRAFTS + "-sc.method=eagle3", NOT_HIT, "eagle3 in vLLM 0.27.0"),
    ("0.32.0", "Llama", "h100", _V2 + MTP + "-sc.method=mtp", NOT_HIT, "mtp"),
    ("0.32.0", "Llama", "h100", _V2 + MTP + "-sc.method=mtp --hf-overrides {}", POSSIBLE, "lengthens the target"),
    ("0.32.0", "Llama", "h100", _DRAFTS + "-sc.method=draft_model", NOT_HIT, "draft_model"),
    ("0.26.0", "Llama", "h100", "VLLM_USE_V2_MODEL_RUNNER=0 " + MTP + "-sc.method=eagle3", NOT_HIT, "model runner: V1"),
    ("0.26.0", "Llama", "h100", VLLM, NOT_HIT, "drafters with a length of their own: off"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"model runner": (("V2",), "V1"), "drafters with a length of their own": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its drafters have the target's config.json"
RUN_AS_IT_IS = "the speculator's constructor and the config's hash run as they are; the correction is a number, set before them"
