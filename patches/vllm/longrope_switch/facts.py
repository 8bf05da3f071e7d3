"""What decides vllm.longrope-switch alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

_ORIGINAL = "original_max_position_embeddings"


def _grows_beyond(it: Deployment) -> Fact:
    """Whether requests may grow beyond the length up to which the engine takes the short table."""
    if it.config is None:
        return unknown(NO_CONFIG)
    text = it.text_config()
    rotary = text.get("rope_scaling") or text.get("rope_parameters") or {}
    if rotary.get("rope_type", rotary.get("type")) not in ("longrope", "su"):
        return known(OFF, "config.json has no rope_scaling of type longrope")
    original = rotary.get(_ORIGINAL, text.get(_ORIGINAL))
    asked = it.number("max-model-len", text.get("max_position_embeddings"))
    if not asked.values or not isinstance(original, int):
        return asked if not asked.values else unknown(f"config.json has no {_ORIGINAL}")
    return known(ON if asked.values[0] > original else OFF, f"{asked.why}: {asked.values[0]}, longrope's original {original}")


FACTS: Makers = {"lengths beyond LongRoPE's original": _grows_beyond}
