"""What decides sglang.qwen35-mrope alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

#: Architectures whose images go through Qwen3.5's attention layers (models/qwen3_5.py and interns2preview.py, 0.5.15-0.5.18)
_MODELS = (
    "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration", "InternS2PreviewForConditionalGeneration",
)  # fmt: skip
#: Their layers have the same attention, and a constructor that the fix does not reach (interns2_mobius.py:522 of 0.5.18)
_NOT_REACHED = "InternS2MobiusForConditionalGeneration"


def _images(it: Deployment) -> Fact:
    if it.config is None:
        return unknown(NO_CONFIG)
    if flag := next(filter(it.given, ("language-model-only", "encoder-only")), None):
        return known(OFF, f"--{flag}")
    if not it.text_config().get("attn_output_gate", True):
        return known(OFF, "config.json says attn_output_gate: false")
    if it.architecture() == _NOT_REACHED:
        return unknown(f"{_NOT_REACHED} has the bug, too, and this fix does not reach its layers")
    return known(ON if it.architecture() in _MODELS else OFF, f"architecture {it.architecture()}")


def _graph(it: Deployment) -> Fact:
    """Whether prompts are served by a graph that the fix is not in: compiled, or, in 0.5.15, any that is asked for."""
    fact = it.option("cuda-graph-backend-prefill", "")
    missed = ("tc_piecewise",) if it.since("0.5.16") else ("tc_piecewise", "breakable", "full")
    return Fact(tuple(ON if value in missed else OFF for value in fact.values), fact.why)


FACTS: Makers = {"images in Qwen3.5's attention": _images, "prefill graph that the fix is not in": _graph}
