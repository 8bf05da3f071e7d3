"""What decides sglang.lora-captured-segments alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact
from attnfix.compat.doctor.deployment import Deployment, Makers


def _backend(it: Deployment) -> Fact:
    if it.release is None:
        return it.option("lora-backend")
    return it.option("lora-backend", "csgmv" if it.since("0.5.5") else "triton")


FACTS: Makers = {
    "LoRA backend": _backend,
    "LoRA slots": lambda it: it.number("max-loras-per-batch", 8),
    "LoRA chunk": lambda it: it.number("max-lora-chunk-size", 16),
    "LoRA drafts": lambda it: it.number("speculative-num-draft-tokens", 12),  # by default of n-gram speculation
}
