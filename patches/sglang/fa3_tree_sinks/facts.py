"""What decides sglang.fa3-tree-sinks alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

#: Architectures whose checkpoints say which of their layers have sinks
_SAID_BY_LAYER = ("MiMoV2", "Granite")


def _sinks(it: Deployment) -> Fact:
    """Whether layers without a window have attention sinks."""
    if it.config is None:
        return unknown(NO_CONFIG)
    architecture = it.architecture() or ""
    if architecture.startswith("GptOss"):
        return known(ON, f"architecture {architecture}")
    if architecture.startswith(_SAID_BY_LAYER):
        return unknown(f"which layers of {architecture} have sinks was not read")
    return known(OFF, f"architecture {architecture}")


FACTS: Makers = {"attention sinks": _sinks}
