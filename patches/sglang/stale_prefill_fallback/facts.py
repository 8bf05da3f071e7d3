"""What decides sglang.stale-prefill-fallback alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.sglang import cuda_graphs


def _verify_after_fallback(it: Deployment) -> Fact:
    """Whether trtllm_mla may verify, or capture that, behind a prefill that it left to FlashInfer's path."""
    if it.release is None or it.launch is None:
        return unknown("needs the release and the launch command")
    if it.since("0.5.10"):
        return unknown("whether a graph of verification is captured behind a prefill in a piecewise CUDA graph was not read")
    without = it.option("disable-chunked-prefix-cache", OFF)
    if without.values == (OFF,):
        piecewise = unknown("whether --enable-piecewise-cuda-graph is given is not read")
        return piecewise if it.since("0.5.8") else known(OFF, without.why)
    if without.values == (ON,) and cuda_graphs(it).values == (OFF,):
        return known(ON, f"{without.why}, and no CUDA graphs")
    return unknown(f"{without.why}; it is where no captured CUDA graph fits a verification")


FACTS: Makers = {
    "verify after a fallback": _verify_after_fallback,
}
