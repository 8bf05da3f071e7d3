"""What decides sglang.plan-stream-verify alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers
from attnfix.compat.doctor.sglang import FACTS as COMMON
from attnfix.compat.doctor.sglang import LAYERED_DRAFTS

_VARIABLE, _VARIABLE_SINCE = "SGLANG_ENABLE_OVERLAP_PLAN_STREAM", "0.5.4"
#: Asked for spec v2 before a variable of its own did
_FLAG, _FLAG_BEFORE = "enable-beta-spec", "0.5.4.post1"
#: Inherits the verification of EAGLE, on spec v2 alone
_FROZEN, _FROZEN_SINCE = "FROZEN_KV_MTP", "0.5.14"


def _planned_apart(it: Deployment) -> Fact:
    """Whether a stream of its own prepares the verification of EAGLE's drafts."""
    if it.release is None:
        return unknown("the default of this release was not read")
    mode = it.option("disaggregation-mode", "null")
    if mode.values == ("prefill",):
        return known(OFF, f"{mode.why} prefill, where nothing is verified")
    overlapped = _overlapped(it, COMMON["speculative algorithm"](it))
    if not it.since(_VARIABLE_SINCE) or overlapped.values == (OFF,):
        return overlapped
    if it.launch is None and _VARIABLE not in it.variables():
        return unknown(f"needs the launch command; {_VARIABLE} is not set here")
    if not it.truth(_VARIABLE):
        return known(OFF, f"no {_VARIABLE}")
    return Fact(overlapped.values, f"{_VARIABLE}={it.variables()[_VARIABLE]}, {overlapped.why}")


def _overlapped(it: Deployment, algorithm: Fact) -> Fact:
    """Whether EAGLE's verification is that of spec v2."""
    if not it.since(_FLAG_BEFORE):
        return it.option(_FLAG, OFF) if algorithm.values == ("EAGLE",) else known(OFF, f"speculative algorithm: {algorithm}")
    if algorithm.values == (_FROZEN,):
        return known(ON if it.since(_FROZEN_SINCE) else OFF, f"speculative algorithm: {algorithm}")
    found = COMMON["spec v2"](it)
    if found.values == (OFF,) and algorithm.values == ("EAGLE",):  # the engine asks for it where several layers draft
        if it.config is None:
            return unknown(NO_CONFIG)
        if it.architecture() in LAYERED_DRAFTS:
            return known(ON, f"architecture {it.architecture()}")
    return found


FACTS: Makers = {"verification planned apart": _planned_apart}
