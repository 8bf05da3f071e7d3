"""What decides sglang.gemma3-mixed-images alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

_MODEL = "Gemma3ForConditionalGeneration"


def _images(it: Deployment) -> Fact:
    """Whether a Gemma 3 reads images, which the launch asks for."""
    if it.config is None:
        return unknown(NO_CONFIG)
    if it.architecture() != _MODEL:
        return known(OFF, f"architecture {it.architecture()}")
    asked = it.option("enable-multimodal", OFF)
    return known(ON, f"{_MODEL}, {asked.why}") if asked.values == (ON,) else asked


FACTS: Makers = {"images of Gemma 3": _images}
