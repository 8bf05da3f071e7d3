"""What decides sglang.fa3-dp-padding alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

#: A model with this key in config.json pads a prefill to the longest rank's while a rank is idle, from 0.5.14 on
_PADS_BESIDE_IDLE = "hybrid_override_pattern"


def _padded(it: Deployment) -> Fact:
    """Whether several ranks share the tokens of a prefill, so that these are padded to a multiple of them."""
    experts = it.option("moe-a2a-backend", "none")
    scattered = (
        experts.values not in ((), ("none",))
        or it.given("enable-attn-tp-input-scattered")
        or it.option("moe-dense-tp-size").values == ("1",)
    )
    dp = it.option("enable-dp-attention", OFF)
    if not dp.values or (dp.values == (OFF,) and not scattered):
        return dp
    ranks, groups = it.number("tp-size", 1), it.number("dp-size", 1) if dp.values == (ON,) else known(1)
    if not (ranks.values and groups.values):
        return ranks if groups.values else groups
    why = f"{ranks.why} {ranks.values[0]}, {groups.why or 'no --enable-dp-attention'} {groups.values[0]}"
    if dp.values == (ON,) and not it.since("0.5.3"):
        return known(ON, "--enable-dp-attention, whose ranks are padded to the longest")
    if int(ranks.values[0]) > int(groups.values[0]):
        return known(ON, why)
    return _padded_to_the_longest(it, experts, why) if dp.values == (ON,) and int(groups.values[0]) > 1 else known(OFF, why)


def _padded_to_the_longest(it: Deployment, experts: Fact, why: str) -> Fact:
    """Of ranks that share no attention, of 0.5.3 and later."""
    force = "SGLANG_DEEPEP_V2_FORCE_MAX_LEN"
    if experts.values == ("pplx",) or (experts.values == ("deepep_v2",) and it.truth(force)):
        return known(ON, f"{experts.why} {experts.values[0]}, which pads each rank's to the longest")
    if not it.since("0.5.14"):
        return known(OFF, why)
    if it.config is None:
        return unknown(NO_CONFIG)
    if it.config.get(_PADS_BESIDE_IDLE) is not None:
        return unknown(f"{why}; {_PADS_BESIDE_IDLE} in config.json pads to the longest while a rank is idle")
    return known(OFF, why)


FACTS: Makers = {"padded prefills": _padded}
