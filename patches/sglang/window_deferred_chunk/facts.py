"""What decides sglang.window-deferred-chunk alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact
from attnfix.compat.doctor.deployment import Deployment, Makers


def _chunks(it: Deployment) -> Fact:
    """Whether long prompts are read in chunks, as they are by default."""
    size = it.number("chunked-prefill-size", 1)
    return Fact(tuple(ON if int(value) > 0 else OFF for value in size.values), size.why)


FACTS: Makers = {"prompts in chunks": _chunks}
