"""What decides vllm.mrope-draft-slots alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact
from attnfix.compat.doctor.deployment import Deployment, Makers


def _one_by_one(it: Deployment) -> Fact:
    """Whether a drafter runs once for each draft. DFlash drafts all in one pass."""
    method = it.option("speculative-config.method", "none")
    found = tuple(OFF if str(value).lower() == "dflash" else ON for value in method.values)
    return Fact(found, f"{method.why} {method.values[0]}" if method.values else method.why)


FACTS: Makers = {"drafts made one by one": _one_by_one}
