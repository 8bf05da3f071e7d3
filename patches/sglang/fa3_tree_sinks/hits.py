"""What decides sglang.fa3-tree-sinks alone."""

from __future__ import annotations

from attnfix.compat.doctor import sglang
from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

#: Architectures whose checkpoints say which of their layers have sinks
_SAID_BY_LAYER = ("MiMoV2", "Granite")


def _trees(it: Deployment) -> Fact:
    """Whether several drafts of one request stand at one position."""
    algorithm = sglang.FACTS["speculative algorithm"](it)
    if algorithm.values == ("NGRAM",):
        branches = it.number("speculative-ngram-max-bfs-breadth", 10)
        why = f"{branches.why}: n-gram speculation"
    else:
        branches = sglang.FACTS["speculative topk"](it)
        why = branches.why
    return Fact(tuple(ON if int(count) > 1 else OFF for count in branches.values), why)


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


FACTS: Makers = {"trees of drafts": _trees, "attention sinks": _sinks}
