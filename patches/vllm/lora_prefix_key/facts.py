"""What decides vllm.lora-prefix-key alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.vllm import cached_states, recurrent_layers


def _caching(it: Deployment) -> Fact:
    """On by default, but for hybrid models in some releases, and for some pooling models."""
    name = "enable-prefix-caching"
    fact = it.option(name, ON)
    if it.given(name) or not fact.values:
        return fact
    if (recurrent := recurrent_layers(it)).values != (OFF,):
        return cached_states(it) if recurrent.values else recurrent
    if named := next(filter(it.given, ("runner", "task", "convert")), None):
        return unknown(f"--{named} may leave prefix caching out; set --{name}")
    return known(ON, "on by default")


FACTS: Makers = {"prefix caching": _caching}
