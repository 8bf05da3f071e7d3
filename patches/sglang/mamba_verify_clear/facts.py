"""What decides sglang.mamba-verify-clear alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.sglang import cuda_graphs

_LISTS = ("cuda-graph-bs", "enable-dp-attention", "disable-cuda-graph-padding", "enable-two-batch-overlap")


def _outside_graphs(it: Deployment) -> Fact:
    """Whether some verification runs outside CUDA graphs."""
    mode = it.option("disaggregation-mode", "null")
    if "prefill" in mode.values:
        return known(OFF, f"{mode.why} prefill")
    graphs = cuda_graphs(it)
    if graphs.values == (OFF,):
        return known(ON, f"CUDA graphs: {graphs}")
    running, most = it.number("max-running-requests"), it.number("cuda-graph-max-bs")
    if graphs.values != (ON,) or not (running.values and most.values) or it.given(*_LISTS):
        return unknown("whether more requests run at once than the graphs hold")
    above = int(running.values[0]) > int(most.values[0])
    return known(ON if above else OFF, f"{running.why} {running.values[0]}, {most.why} {most.values[0]}")


FACTS: Makers = {"verification outside CUDA graphs": _outside_graphs}
