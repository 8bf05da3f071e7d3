"""What decides vllm.lora-prefix-key alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers

_UPDATES = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"


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
    "adapters change while serving": _change,
}
