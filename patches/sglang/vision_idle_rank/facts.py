"""What decides sglang.vision-idle-rank alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.sglang import cuda_graphs

#: Models that take the positions of text where M-RoPE has none, from a release on
_GLM_V, _TAKE_OTHERS = ("Glm4vForConditionalGeneration", "Glm4vMoeForConditionalGeneration"), "0.5.21"
#: Models whose layers skip attention on an idle rank
_SKIP = "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"


def _padded(it: Deployment) -> Fact:
    """Whether a batch of a rank without requests is padded outside CUDA graphs."""
    graphs, architecture = cuda_graphs(it), it.architecture()
    if architecture in _GLM_V and it.since(_TAKE_OTHERS):
        return known(OFF, f"architecture {architecture}, which takes positions of text from {_TAKE_OTHERS} on")
    if architecture in _SKIP:
        return unknown(f"whether drafts are verified or prefill graphs run: else {architecture} skips attention there")
    if graphs.values == (OFF,):
        return known(ON, f"no CUDA graphs: {graphs.why}")
    return unknown("whether a rank is idle while others decode batches above the largest graph")


FACTS: Makers = {"idle ranks outside CUDA graphs": _padded}
