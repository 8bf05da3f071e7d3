"""What decides vllm.mamba-prefix-cache alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.vllm import linear_attention


def chunks_after_a_preemption(it: Deployment) -> Fact:
    """Whether the chunks of a request that was preempted end with blocks, as those of others do where states are cached so."""
    if it.since("0.17.0"):
        return known("with blocks", f"vLLM {it.release}")
    if linear_attention(it).values == (ON,):
        return known("anywhere", f"vLLM {it.release}")
    return Fact(("anywhere", "with blocks"), "it depends on --mamba-cache-mode")


FACTS: Makers = {
    "chunks after a preemption": chunks_after_a_preemption,
}
