"""What decides sglang.mixed-chunk-states alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers, switch


def _mixed(it: Deployment) -> Fact:
    """Whether requests that decode join a batch of prompts."""
    asked = it.option("enable-mixed-chunk", OFF)
    if asked.values == (OFF,):
        return asked
    chunk = it.number("chunked-prefill-size")
    if it.given("chunked-prefill-size") and chunk.values and int(chunk.values[0]) <= 0:
        return known(OFF, f"{chunk.why} {chunk.values[0]}")
    if it.given("speculative-algorithm"):
        if it.release is not None and not it.since("0.5.19"):
            return known(OFF, "--speculative-algorithm turns --enable-mixed-chunk off")
        return unknown("some algorithms of --speculative-algorithm turn --enable-mixed-chunk off")
    return switch(asked, ON)


FACTS: Makers = {"mixed chunks": _mixed}
