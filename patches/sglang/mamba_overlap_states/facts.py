"""What decides sglang.mamba-overlap-states alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers

#: From here on the engine switches overlap off for Qwen3-Next with a radix cache
_SWITCHED_OFF = "0.5.5.post2"


def _qwen(it: Deployment) -> Fact:
    if it.release is None:
        return Fact((ON, OFF), "the release is not known")
    return known(OFF if it.since(_SWITCHED_OFF) else ON, f"sglang {it.release}")


FACTS: Makers = {"Qwen3-Next overlaps": _qwen}
