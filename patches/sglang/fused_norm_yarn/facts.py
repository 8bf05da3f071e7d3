"""What decides sglang.fused-norm-yarn alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

from .wrap import asked_length

_MODEL = "Qwen3MoeForCausalLM"


def _other_factor(it: Deployment) -> Fact:
    """Whether the fused kernel runs with settings of YaRN whose factor is no ratio of the lengths in config.json."""
    if it.config is None:
        return unknown(NO_CONFIG)
    if it.architecture() != _MODEL:
        return known(OFF, f"architecture {it.architecture()}")
    asked = it.option("enable-fused-qk-norm-rope", OFF)
    if asked.values != (ON,):
        return asked
    if it.given("json-model-override-args"):
        return Fact((ON, OFF), "--json-model-override-args may have settings of YaRN")
    config = it.text_config()
    found = asked_length(config.get("rope_parameters") or config.get("rope_scaling") or {})
    if found in (None, config.get("max_position_embeddings")):
        return known(OFF, "config.json has no YaRN of another factor")
    return known(ON, f"{asked.why}, and YaRN's factor in config.json")


FACTS: Makers = {"YaRN of another factor in the fused kernel": _other_factor}
