"""Rows of vllm.image-mask-race for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import MTP_METHOD, VLLM

_AHEAD, _DRAFTS = VLLM + "--async-scheduling ", VLLM + MTP_METHOD
#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.13.0", "Qwen-VL", "h100", _AHEAD, HIT, "--async-scheduling"),
    ("0.12.0", "Qwen-VL", "mi300x", _AHEAD, HIT, "--async-scheduling"),
    ("0.11.1", "3.5", "h100", _DRAFTS, HIT, "--speculative-config.method mtp"),
    ("0.13.0", "3.5", "h100", _DRAFTS + "-sc.disable_padded_drafter_batch=true", NOT_HIT, "disable_padded_drafter_batch"),
    ("0.11.2", "Qwen-VL", "h100", _AHEAD, NOT_HIT, "waits for the mask"),
    ("0.13.0", "Qwen-VL", "h100", VLLM, NOT_HIT, "async-scheduling"),
    ("0.13.0", "Llama", "h100", _AHEAD, NOT_HIT, "LlamaForCausalLM"),
    ("0.13.0", "Qwen-VL", "h100", _AHEAD + """--limit-mm-per-prompt '{"image": 0}'""", POSSIBLE, "--limit-mm-per-prompt"),
    ("0.13.0", None, "h100", _AHEAD, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"inputs other than text": (("on",), "off"), "mask of images ahead of its copy": (("on",), "off")},
    {"inputs other than text": (("on",), "off"), "mask of images shared with a drafter": (("on",), "off")},
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its models take text alone, and no GPU of its is behind"
#: Why what the target enters needs no witness
RUN_AS_IT_IS = "a mask is written as it is written, into memory of its own; its copy and who waits for it are witnesses"
