"""What decides sglang.mamba2-tensor-parallel alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact
from attnfix.compat.doctor.deployment import Deployment, Makers


def _parts(it: Deployment) -> Fact:
    """Whether several ranks have a part of each layer."""
    size = it.option("tp-size", "1")
    why = " ".join((size.why, *map(str, size.values)))
    return Fact(tuple(OFF if value == "1" else ON for value in size.values), why)


FACTS: Makers = {"ranks that share a layer": _parts}
