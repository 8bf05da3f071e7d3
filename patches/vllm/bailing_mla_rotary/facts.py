"""What decides vllm.bailing-mla-rotary alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

_FACTOR = "partial_rotary_factor"


def _factor(it: Deployment) -> Fact:
    """Whether config.json has a factor by which MLA would rotate a part of its dimensions."""
    if it.config is None:
        return unknown(NO_CONFIG)
    text = it.text_config()
    places = text, text.get("rope_parameters") or {}, text.get("rope_scaling") or {}
    found = next((place[_FACTOR] for place in places if place.get(_FACTOR) is not None), 1)
    return known(OFF if found == 1 else ON, f"config.json: {_FACTOR} {found}")


FACTS: Makers = {"rotary factor of linear attention": _factor}
