"""What decides sglang.window-deferred-chunk alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers

#: From here on, prefill servers alone cache a prompt whose chunk was put off
_PREFILL_ALONE = "0.5.12"


def _each_turn(it: Deployment) -> Fact:
    """Whether a prompt that is read in chunks is cached in each turn, also behind none of its chunks."""
    if not it.since(_PREFILL_ALONE):
        return known(ON, f"servers before sglang {_PREFILL_ALONE}")
    mode = it.option("disaggregation-mode", "null")
    return Fact(tuple(ON if value == "prefill" else OFF for value in mode.values), mode.why or "no --disaggregation-mode")


FACTS: Makers = {"prompts cached in each turn": _each_turn}
