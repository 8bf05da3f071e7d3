"""What decides sglang.layered-eagle-last-slot alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.sglang import FACTS as COMMON
from attnfix.compat.doctor.sglang import LAYERED_DRAFTS, cuda_graphs

#: Releases whose slots begin at 1; before, a decode server has slots behind those of its running requests
_FROM_ONE_SINCE = "0.5.11"
#: A decode server that runs more requests at once takes none ahead, unless told
_FEW, _AHEAD = 32, "SGLANG_DISAGGREGATION_NUM_PRE_ALLOCATE_REQS"


def _spec_v2(it: Deployment) -> Fact:
    if it.release is not None and not it.since(_FROM_ONE_SINCE) and it.architecture() in LAYERED_DRAFTS:
        return known(ON, f"architecture {it.architecture()} switches it on")
    return COMMON["spec v2"](it)


def _slots_behind(it: Deployment) -> Fact:
    """Whether some request gets a slot that the buffer of hidden states has no row for, and writes there."""
    if it.release is None:
        return unknown("the slots of this release were not read")
    if it.since(_FROM_ONE_SINCE):
        return known(ON, f"slots of sglang {it.release} begin at 1")
    mode = it.option("disaggregation-mode", "null")
    if mode.values != ("decode",):
        return Fact(tuple(OFF for _ in mode.values), f"{mode.why}, where slots begin at 0")
    graphs = cuda_graphs(it)
    if graphs.values == (OFF,):
        return known(OFF, f"{graphs.why}: without graphs, a decode server writes no hidden states")
    running = it.number("max-running-requests")
    if graphs.values == (ON,) and running.values and int(running.values[0]) <= _FEW:
        return known(ON, f"{mode.why} decode, {running.why} {running.values[0]}")
    return unknown(f"whether a rank takes at most {_FEW} requests at once, or {_AHEAD} is set")


FACTS: Makers = {"spec v2 of several draft layers": _spec_v2, "slots behind the hidden states": _slots_behind}
