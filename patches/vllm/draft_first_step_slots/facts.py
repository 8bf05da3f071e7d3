"""What decides vllm.draft-first-step-slots alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact
from attnfix.compat.doctor.deployment import Deployment, Makers

_METHOD, _DRAFTER = "speculative-config.method", "speculative-config.model"


def _sampled_too(it: Deployment) -> Fact:
    """Whether the drafter runs over the sampled token, too: a model of its own, which reads no hidden states, and DFlash."""
    method = it.option(_METHOD, "none")
    if not method.values:
        return method
    if it.given(_DRAFTER) and not it.given(_METHOD):
        return Fact((ON, OFF), f"the engine finds the method of --{_DRAFTER} out")
    asked = tuple(ON if str(value).lower() in ("draft_model", "dflash") else OFF for value in method.values)
    return Fact(asked, f"{method.why} {method.values[0]}")


FACTS: Makers = {"drafter that writes the sampled token": _sampled_too}
