"""What decides sglang.mrope-retraction alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact
from attnfix.compat.doctor.deployment import Deployment, Makers


def _prefills_again(it: Deployment) -> Fact:
    """Whether a request that was taken back prefills its answer. Of a pair, the one decodes on, and the other never decodes."""
    role = it.option("disaggregation-mode", "null")
    return Fact(tuple(ON if value == "null" else OFF for value in role.values), role.why)


FACTS: Makers = {"answers that are prefilled again": _prefills_again}
