"""What decides sglang.vision-padded-positions alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers


def _groups(it: Deployment) -> Fact:
    """Whether groups of ranks attend to requests of their own."""
    dp, groups = it.option("enable-dp-attention", OFF), it.number("dp-size", 1)
    if not (dp.values and groups.values):
        return groups if dp.values else dp
    if dp.values == (ON,) and int(groups.values[0]) > 1:
        return known(ON, f"{dp.why}, {groups.why} {groups.values[0]}")
    return known(OFF, f"{dp.why or 'no --enable-dp-attention'}, {groups.why or 'no --dp-size'}")


def _shared(it: Deployment) -> Fact:
    """Whether ranks tell each other the tokens of each batch, which is padded then."""
    experts, dense = it.option("moe-a2a-backend", "none"), it.option("moe-dense-tp-size")
    if experts.values not in ((), ("none",)):
        return known(ON, f"{experts.why} {experts.values[0]}")
    if dense.values == ("1",):
        return known(ON, f"{dense.why} 1")
    groups = _groups(it)
    return groups if experts.values or groups.values != (OFF,) else experts


FACTS: Makers = {"batches that ranks share": _shared, "groups of ranks that attend": _groups}
