"""What decides sglang.encoder-prefix-cache alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers

_SPECIAL = (
    "enable-hierarchical-cache", "enable-lmcache", "enable-flexkv", "radix-cache-backend",
    "enable-unified-cache-external-linker",
)  # fmt: skip


def _special(it: Deployment) -> Fact:
    """Whether the radix cache is one that the fix cannot switch off."""
    if it.given("disable-radix-cache"):
        return known(OFF, "--disable-radix-cache")
    sessions = () if it.since("0.5.22") else ("enable-streaming-session",)
    if named := next(filter(it.given, (*_SPECIAL, *sessions)), None):
        return known(ON, f"--{named}")
    if it.truth(_CPP) and not it.since("0.5.21"):
        return known(ON, f"${_CPP}")
    return known(OFF, "none is named")


_CPP = "SGLANG_EXPERIMENTAL_CPP_RADIX_TREE"
FACTS: Makers = {"special radix cache": _special}
