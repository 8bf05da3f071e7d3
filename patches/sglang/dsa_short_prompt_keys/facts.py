"""What decides sglang.dsa-short-prompt-keys alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact
from attnfix.compat.doctor.deployment import Deployment, Makers


def _keys_alone(it: Deployment) -> Fact:
    """Whether index keys of short prompts are computed without queries: ranks that share a prompt compute both."""
    shared = it.option("enable-nsa-prefill-context-parallel", OFF)
    return Fact(tuple(ON if value == OFF else OFF for value in shared.values), shared.why)


FACTS: Makers = {"index keys without queries": _keys_alone}
