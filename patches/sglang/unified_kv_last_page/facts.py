"""What decides sglang.unified-kv-last-page alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers

_VARIABLE, _BACKEND = "SGLANG_HACK_FLASHMLA_BACKEND", "unified_kv_triton"


def _one_buffer(it: Deployment) -> Fact:
    """Whether all KV of a layer of DeepSeek-V4 lie in one buffer. HiCache has none of it, and takes another backend."""
    if it.launch is None and _VARIABLE not in it.variables():
        return unknown(f"needs the launch command; {_VARIABLE} is not set here")
    chosen = it.variables().get(_VARIABLE)
    if chosen != _BACKEND:
        return known(OFF, f"{_VARIABLE}={chosen}" if chosen else f"no {_VARIABLE}")
    tiers = it.option("enable-hierarchical-cache", OFF)
    return Fact(tuple(ON if value == OFF else OFF for value in tiers.values), tiers.why or f"{_VARIABLE}={chosen}")


FACTS: Makers = {"KV of a layer in one buffer": _one_buffer}
