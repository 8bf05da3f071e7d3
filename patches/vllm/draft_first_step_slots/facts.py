"""What decides vllm.draft-first-step-slots alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact
from attnfix.compat.doctor.deployment import Deployment, Makers

_METHOD, _DRAFTER = "speculative-config.method", "speculative-config.model"


def _draft_model(it: Deployment) -> Fact:
    """Whether drafts are those of a model of its own, which reads no hidden states."""
    method = it.option(_METHOD, "none")
    if not method.values:
        return method
    if it.given(_DRAFTER) and not it.given(_METHOD):
        return Fact((ON, OFF), f"the engine finds the method of --{_DRAFTER} out")
    asked = tuple(ON if str(value).lower() == "draft_model" else OFF for value in method.values)
    return Fact(asked, f"{method.why} {method.values[0]}")


FACTS: Makers = {"drafts of a draft model": _draft_model}
