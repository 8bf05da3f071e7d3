"""What decides vllm.accepted-counts-race alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers


def accepted_counts(it: Deployment) -> Fact:
    """Where the runner reads how many drafts were accepted: on the host in every mode, or only where states are cached."""
    return known("with cached states" if it.since("0.24.0") else "on the host", f"vLLM {it.release}")


FACTS: Makers = {
    "accepted counts": accepted_counts,
}
