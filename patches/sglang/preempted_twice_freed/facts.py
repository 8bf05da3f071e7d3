"""What decides sglang.preempted-twice-freed alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers


def _priorities(it: Deployment) -> Fact:
    """Whether a request may take the place of one that runs: a server for prefill runs none, one for decode preempts none."""
    mode = it.option("disaggregation-mode", "null")
    if mode.values in (("prefill",), ("decode",)):
        return known(OFF, f"--disaggregation-mode {mode.values[0]}")
    return it.option("enable-priority-scheduling", OFF)


FACTS: Makers = {"priority scheduling": _priorities}
