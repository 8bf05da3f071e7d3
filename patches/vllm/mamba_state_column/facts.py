"""What decides vllm.mamba-state-column alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers
from attnfix.compat.doctor.vllm import blocks_beside_states


def _blocks(it: Deployment) -> Fact:
    """Whether some layers have shorter blocks than recurrent states, for workers that know of it."""
    if it.config is None:
        return unknown(NO_CONFIG)
    ranks = {name: it.number(name, 1) for name in ("tensor-parallel-size", "pipeline-parallel-size")}
    for name, fact in ranks.items():
        if fact.values != (1,):
            return fact if not fact.values else unknown(f"--{name}: workers in processes of their own should keep the size")
    return blocks_beside_states(it)


FACTS: Makers = {"blocks beside those of states": _blocks}
