"""What decides sglang.plan-stream-verify alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.sglang import FACTS as COMMON

_VARIABLE, _FLAG, _VARIABLE_SINCE = "SGLANG_ENABLE_OVERLAP_PLAN_STREAM", "enable-beta-spec", "0.5.4"
#: Inherits the verification of EAGLE, on spec v2 alone
_FROZEN = "FROZEN_KV_MTP"


def _planned_apart(it: Deployment) -> Fact:
    """Whether a stream of its own prepares the verification of EAGLE's drafts."""
    if it.release is None:
        return unknown("the default of this release was not read")
    mode = it.option("disaggregation-mode", "null")
    if mode.values == ("prefill",):
        return known(OFF, f"{mode.why} prefill, where nothing is verified")
    algorithm = COMMON["speculative algorithm"](it)
    if not it.since(_VARIABLE_SINCE):
        asked = it.option(_FLAG, OFF)
        return asked if algorithm.values == ("EAGLE",) else known(OFF, f"speculative algorithm: {algorithm}")
    if it.launch is None and _VARIABLE not in it.variables():
        return unknown(f"needs the launch command; {_VARIABLE} is not set here")
    if not it.truth(_VARIABLE):
        return known(OFF, f"no {_VARIABLE}")
    why = f"{_VARIABLE}={it.variables()[_VARIABLE]}"
    layered = COMMON["several draft layers"](it)
    found = known(ON, "") if algorithm.values == (_FROZEN,) or layered.values == (ON,) else COMMON["spec v2"](it)
    return Fact(found.values, f"{why}, {found.why}".removesuffix(", "))


FACTS: Makers = {"verification planned apart": _planned_apart}
