"""What decides vllm.accepted-counts-race alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.vllm import linear_attention

ALWAYS, WHERE_CACHED, NEVER = "always", "where states are cached", "never"


def accepted_counts(it: Deployment) -> Fact:
    """When the runner reads on the host how many drafts were accepted: from 0.24.0 on in --mamba-cache-mode align alone, which
    models with linear attention have where states are cached."""
    if not it.since("0.24.0"):
        return known(ALWAYS, f"vLLM {it.release}")
    if linear_attention(it).values == (ON,):
        return known(WHERE_CACHED, f"vLLM {it.release}")
    return Fact((WHERE_CACHED, NEVER), "it depends on --mamba-cache-mode")


FACTS: Makers = {
    "accepted counts on the host": accepted_counts,
}
