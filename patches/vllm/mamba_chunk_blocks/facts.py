"""What decides vllm.mamba-chunk-blocks alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.vllm import blocks_beside_states

_SKIPPED = "kv-cache-dtype-skip-layers"


def _blocks(it: Deployment) -> Fact:
    """Whether the scheduler counts in blocks that are shorter than those of recurrent states."""
    return unknown(f"--{_SKIPPED}: their blocks may be shorter") if it.given(_SKIPPED) else blocks_beside_states(it)


FACTS: Makers = {"blocks that the scheduler counts in": _blocks}
