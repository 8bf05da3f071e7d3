"""What decides sglang.mamba-snapshot-race alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers


def _chunks(it: Deployment) -> Fact:
    """Whether prompts that are long enough are computed in chunks."""
    if it.absent("chunked-prefill-size"):
        return known(ON, "--chunked-prefill-size is set by default")
    size = it.number("chunked-prefill-size")
    return Fact(tuple(ON if int(one) > 0 else OFF for one in size.values), size.why)


FACTS: Makers = {"prompts in chunks": _chunks}
