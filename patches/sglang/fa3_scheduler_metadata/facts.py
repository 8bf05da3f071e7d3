"""What decides sglang.fa3-scheduler-metadata alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers, either

#: Launches in which a rank has more heads than the schedule is made for -> the first release that makes none there
_NO_SCHEDULE = {"enable-dp-attention": "0.5.12", "enable-prefill-context-parallel": "0.5.15", "enable-prefill-cp": "0.5.15"}


def _schedule(it: Deployment) -> Fact:
    """Whether the schedule of decode that FlashAttention gets is for as many heads as a rank has."""
    launches = {name: it.option(name, OFF) for name in _NO_SCHEDULE}
    for name, first in _NO_SCHEDULE.items():
        if launches[name].values == (ON,):
            if it.release is None:
                return unknown("it depends on the release")
            if it.since(first):
                return known("right", f"sglang {it.release} makes none with --{name}")
    size = it.number("attn-cp-size", 1)
    groups = Fact(tuple(ON if int(ranks) > 1 else OFF for ranks in size.values), size.why)
    apart = either(*launches.values(), groups)
    return Fact(tuple("for other heads" if value == ON else "right" for value in apart.values), apart.why)


FACTS: Makers = {
    "FlashAttention schedule": _schedule,
}
