"""What decides vllm.yarn-attention-factor alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

from .wrap import own_scale, usual_scale


def _own_factor(it: Deployment) -> Fact:
    """Whether YaRN has another attention factor than its usual one, by a setting that the engine does not read."""
    if it.config is None or it.given("rope-scaling"):
        return unknown(NO_CONFIG if it.config is None else "--rope-scaling")
    if (impl := it.option("model-impl", "auto")).values == ("transformers",):
        return known(OFF, f"{impl.why} transformers")
    if it.text_config().get("kv_lora_rank") is not None:
        return known(OFF, "models with MLA have a YaRN of their own")
    for rope in _ropes(it):
        asked = own_scale(rope)
        if asked is not None and rope.get("apply_yarn_scaling", True) and rope.get("attn_factor", 1) == 1:
            return known(ON, f"config.json asks for {asked:.4g}, and not for {usual_scale(rope['factor']):.4g}")
    return known(OFF, "config.json names no attention factor of its own")


def _ropes(it: Deployment) -> list[Mapping[str, Any]]:
    """Settings of YaRN in config.json: of all layers, or of each kind of them."""
    text = it.text_config()
    found = text.get("rope_parameters") or text.get("rope_scaling") or {}
    ropes = [value for value in found.values() if isinstance(value, Mapping)] or [found]
    return [rope for rope in ropes if "yarn" in (rope.get("rope_type"), rope.get("type"))]


FACTS: Makers = {"own attention factor of YaRN": _own_factor}
