"""What decides sglang.fa3-dp-padding alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers


def _padded(it: Deployment) -> Fact:
    """Whether several ranks share the tokens of a prefill, so that these are padded to a multiple of them."""
    scattered = next(filter(it.given, ("moe-a2a-backend", "enable-attn-tp-input-scattered")), None)
    if it.option("moe-dense-tp-size").values == ("1",):
        scattered = "moe-dense-tp-size 1"
    dp = it.option("enable-dp-attention", OFF)
    if not dp.values or (dp.values == (OFF,) and scattered is None):
        return dp
    ranks, groups = it.number("tp-size", 1), it.number("dp-size", 1) if dp.values == (ON,) else known(1)
    if not (ranks.values and groups.values):
        return ranks if groups.values else groups
    why = f"{ranks.why} {ranks.values[0]}, {groups.why or 'no --enable-dp-attention'} {groups.values[0]}"
    if dp.values == (ON,) and not it.since("0.5.3"):
        return known(ON, "--enable-dp-attention, whose ranks are padded to the longest")
    return known(ON if int(ranks.values[0]) > int(groups.values[0]) else OFF, why)


FACTS: Makers = {"padded prefills": _padded}
