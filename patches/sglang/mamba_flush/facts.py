"""What decides sglang.mamba-flush alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers


def _keeps(it: Deployment) -> Fact:
    """Whether states of prompts that have ended are kept for later ones."""
    if it.option("disaggregation-mode", "null").values == ("decode",):
        return known(OFF, "--disaggregation-mode decode")
    return known(OFF, "--disable-radix-cache") if it.given("disable-radix-cache") else known(ON, "the radix cache keeps them")


FACTS: Makers = {"kept recurrent states": _keeps}
