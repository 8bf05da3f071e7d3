"""What decides sglang.qwen35-mrope alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

#: Architectures whose images Qwen3.5's attention layers read (0.5.15-0.5.18, models/qwen3_5.py, interns2preview.py,
#: interns2_mobius.py)
_MODELS = (
    "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration", "InternS2PreviewForConditionalGeneration",
    "InternS2MobiusForConditionalGeneration",
)  # fmt: skip


def _images(it: Deployment) -> Fact:
    if it.config is None:
        return unknown(NO_CONFIG)
    if it.given("language-model-only"):
        return known(OFF, "--language-model-only")
    if not it.text_config().get("attn_output_gate", True):
        return known(OFF, "config.json says attn_output_gate: false")
    return known(ON if it.architecture() in _MODELS else OFF, f"architecture {it.architecture()}")


FACTS: Makers = {"images in Qwen3.5's attention": _images}
