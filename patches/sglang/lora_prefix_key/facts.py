"""What decides sglang.lora-prefix-key alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers, switch

_READERS = (
    "hicache-storage-backend", "kv-events-config", "enable-lmcache", "enable-flexkv", "radix-cache-backend",
    "enable-unified-cache-external-linker",
)  # fmt: skip


def _readers(it: Deployment) -> Fact:
    named = next(filter(it.given, _READERS), None)
    return known(ON, f"--{named}") if named else known(OFF, "none is named")


def _keys(it: Deployment) -> Fact:
    """Whether requests without an adapter come with the key of one."""
    if it.option("disaggregation-mode", "null").values == ("prefill",) and it.since("0.5.16"):
        return known(ON, "--disaggregation-mode prefill: decode servers send them after a pause that retracts requests")
    return unknown(f"clients may send them as {'extra_key' if it.since('0.5.18') else 'extra_key or cache_salt'}")


FACTS: Makers = {
    "radix cache": lambda it: switch(it.option("disable-radix-cache", OFF), OFF),
    "readers of cache keys": _readers,
    "keys that end in an adapter's id": _keys,
}
