"""What decides sglang.mamba-retraction alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers


def _decodes_beside(it: Deployment) -> Fact:
    """Whether the server that makes answers keeps states of former prompts, too. Of a pair, none does."""
    role = it.option("disaggregation-mode", "null")
    if role.values == ("null",) and it.given("disable-radix-cache"):
        return known(OFF, "--disable-radix-cache")
    return Fact(tuple(ON if value == "null" else OFF for value in role.values), role.why)


FACTS: Makers = {"decode beside kept states": _decodes_beside}
