"""What decides vllm.dp-dummy-states alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers

ALWAYS, DENSE, GRAPHS, NEVER = "always", "outside MLA", "in graphs", "never"


def _slots(it: Deployment) -> Fact:
    """When the slots of a dummy batch of Model Runner V1 are those of former steps or of the null block. From 0.15.0 a layer
    takes its slots outside graphs, too; in 0.17 MLA's do so."""
    if it.since("0.20.0"):
        return known(NEVER, f"vLLM {it.release} gives a dummy batch no slots")
    if not it.since("0.15.0"):
        return known(GRAPHS, f"vLLM {it.release}")
    return known(ALWAYS if it.since("0.17.0") and not it.since("0.18.0") else DENSE, f"vLLM {it.release}")


FACTS: Makers = {"slots of a dummy batch": _slots}
