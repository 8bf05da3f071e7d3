"""What decides sglang.yarn-settings alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

from .wrap import own_scale


def _unread(it: Deployment) -> Fact:
    """Whether config.json has settings of YaRN that the release does not read."""
    if it.config is None:
        return unknown(NO_CONFIG)
    if (impl := it.option("model-impl", "auto")).values == ("transformers",):
        return known(OFF, f"{impl.why} transformers")
    if it.text_config().get("kv_lora_rank") is not None:
        return known(OFF, "models with latent attention have a YaRN of their own")
    asked = [rope for rope in _ropes(it) if rope.get("rope_type", rope.get("type")) == "yarn" and "mrope_section" not in rope]
    if any(own_scale(rope) is not None for rope in asked):
        return known(ON, "`mscale` and `mscale_all_dim` of YaRN in config.json")
    if all(rope.get("truncate", True) for rope in asked):
        return known(OFF, "config.json has none")
    if it.release is None:
        return Fact((ON, OFF), "`truncate` of YaRN in config.json, which 0.5.7 reads")
    return known(OFF if it.since("0.5.7") else ON, f"`truncate` of YaRN in config.json, and sglang {it.release}")


def _ropes(it: Deployment) -> list[Mapping[str, Any]]:
    """The settings of RoPE: one, or one for each kind of layer."""
    text = it.text_config()
    found = text.get("rope_parameters") or text.get("rope_scaling") or {}
    return [value for value in found.values() if isinstance(value, Mapping)] or [found]


FACTS: Makers = {"settings of YaRN that are not read": _unread}
