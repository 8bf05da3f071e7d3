"""What decides sglang.vision-idle-rank alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.sglang import cuda_graphs


def _padded(it: Deployment) -> Fact:
    """Whether a batch of a rank without requests is padded outside CUDA graphs."""
    graphs = cuda_graphs(it)
    if graphs.values == (OFF,):
        return known(ON, f"no CUDA graphs: {graphs.why}")
    return unknown("whether a rank is idle while others decode batches above the largest graph")


FACTS: Makers = {"idle ranks outside CUDA graphs": _padded}
