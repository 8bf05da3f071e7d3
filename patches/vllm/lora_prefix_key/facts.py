"""What decides vllm.lora-prefix-key alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.vllm import cached_states, recurrent_layers

_UPDATES = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"


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


def _change(it: Deployment) -> Fact:
    if it.truth(_UPDATES):
        return known(ON, f"${_UPDATES}")
    return unknown(f"${_UPDATES} is not set: a resolver may load them, and a cache_salt may equal a name")


def _events(it: Deployment) -> Fact:
    fact = it.option("kv-events-config.enable_kv_cache_events", "false")
    return Fact(tuple(OFF if str(value).lower() == "false" else ON for value in fact.values), fact.why)


FACTS: Makers = {
    "KV events": _events,
    "LoRA adapters": lambda it: it.option("enable-lora", OFF),
    "prefix caching": _caching,
    "adapters change while serving": _change,
}
