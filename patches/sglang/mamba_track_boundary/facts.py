"""What decides sglang.mamba-track-boundary alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers, switch

_EXTRA = ("extra_buffer", "extra_buffer_lazy")


def _tracked(it: Deployment) -> Fact:
    """Whether two buffers take states by turns, while the scheduler prepares a step ahead."""
    for option in ("disable-radix-cache", "disable-overlap-schedule"):
        off = it.option(option, OFF)
        if off.values != (OFF,):
            return switch(off, OFF)
    strategy = it.option("mamba-radix-cache-strategy", "auto")
    if strategy.values == ("auto",):
        if it.release is None:
            return Fact((ON, OFF), strategy.why)
        if not it.since("0.5.14"):
            return known(OFF, f"{strategy.why}, which is no_buffer before 0.5.14")
        linear = it.option("linear-attn-backend", "triton")
        if linear.values and linear.values != ("triton",):
            return known(OFF, f"{linear.why} {linear.values[0]}")
        return known(ON, strategy.why) if linear.values else linear
    chosen = f"{strategy.why} {strategy.values[0]}" if strategy.values else strategy.why
    return Fact(tuple(ON if value in _EXTRA else OFF for value in strategy.values), chosen)


FACTS: Makers = {"states kept by turns": _tracked}
