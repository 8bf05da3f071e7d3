"""What decides sglang.vision-padded-positions alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.sglang import FACTS as COMMON


def _shared(it: Deployment) -> Fact:
    """Whether ranks tell each other the tokens of each batch, which is padded then."""
    experts, dense = it.option("moe-a2a-backend", "none"), it.option("moe-dense-tp-size")
    if experts.values not in ((), ("none",)):
        return known(ON, f"{experts.why} {experts.values[0]}")
    if dense.values == ("1",):
        return known(ON, f"{dense.why} 1")
    groups = COMMON["groups of ranks that attend"](it)
    return groups if experts.values or groups.values != (OFF,) else experts


FACTS: Makers = {"batches that ranks share": _shared}
