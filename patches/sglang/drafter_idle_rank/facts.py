"""What decides sglang.drafter-idle-rank alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.sglang import cuda_graphs

_NO_GRAPHS = "SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH"


def _outside(it: Deployment) -> Fact:
    """Whether draft layers run outside CUDA graphs while a rank is idle."""
    graphs = cuda_graphs(it)
    if it.truth(_NO_GRAPHS):
        return known(ON, _NO_GRAPHS)
    if graphs.values == (OFF,):
        return known(ON, f"no CUDA graphs: {graphs.why}")
    return unknown("whether a rank is idle while others decode batches above the largest graph")


FACTS: Makers = {"draft layers outside CUDA graphs": _outside}
