"""What decides sglang.mamba-overlap-states alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers, switch

#: From here on the engine switches overlap off for Qwen3-Next with a radix cache
_SWITCHED_OFF = "0.5.5.post2"


def _qwen(it: Deployment) -> Fact:
    if it.release is None:
        return Fact((ON, OFF), "the release is not known")
    return known(OFF if it.since(_SWITCHED_OFF) else ON, f"sglang {it.release}")


def _overlap(it: Deployment) -> Fact:
    """Whether steps overlap, of a server of any role: stages of a pipeline do not."""
    stages = it.number("pp-size", 1)
    if stages.values and stages.values != (1,):
        return known(OFF, f"{stages.why} {stages.values[0]}")
    overlaps = switch(it.option("disable-overlap-schedule", OFF), OFF)
    return overlaps if stages.values or overlaps.values == (OFF,) else stages


FACTS: Makers = {"Qwen3-Next overlaps": _qwen, "overlap beside kept states": _overlap}
