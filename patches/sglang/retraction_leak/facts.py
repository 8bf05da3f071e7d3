"""What decides sglang.retraction-leak alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact
from attnfix.compat.doctor.deployment import Deployment, Makers


def _answers(it: Deployment) -> Fact:
    """Whether the server makes answers, whose requests may be taken back."""
    role = it.option("disaggregation-mode", "null")
    why = " ".join((role.why, *map(str, role.values)))
    return Fact(tuple(OFF if value == "prefill" else ON for value in role.values), why)


FACTS: Makers = {"answers that may be taken back": _answers}
