"""What decides sglang.hybrid-chunk-metadata alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers
from attnfix.compat.doctor.sglang import BACKENDS, backend

#: Architectures with layers of linear attention beside those of full MLA
LINEAR_MLA = frozenset({"KimiLinearForCausalLM", "BailingMoeV2_5ForCausalLM"})


def _hybrid_backend(it: Deployment) -> Fact:
    """Whether the model sees a backend that stands before others: for prefill and decode, or for full and linear attention."""
    if it.architecture() in LINEAR_MLA:
        return known(ON, f"{it.architecture()} has linear attention layers")
    if it.config is None:
        return unknown(NO_CONFIG)
    prefill, decode = (backend(it, phase) for phase in ("prefill", "decode"))
    if len(prefill.values) != 1 or len(decode.values) != 1:
        apart = it.given(*BACKENDS[1:]) or it.given("enable-hierarchical-cache") or not it.absent(BACKENDS[1])
        return unknown(prefill.why or decode.why) if apart else known(OFF, "no --prefill-attention-backend")
    why = f"prefill {prefill}, decode {decode}"
    return known(OFF if prefill.values == decode.values else ON, why)


FACTS: Makers = {
    "hybrid backend": _hybrid_backend,
}
