"""What decides vllm.kv-scale-float alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.vllm import attention_backend


def scales_of_backend(it: Deployment) -> Fact:
    """What the attention backend multiplies by: the layer's tensors, or their copies as numbers."""
    backend = attention_backend(it)
    if not backend.values:
        return backend
    name, why = backend.values[0], f"{backend.why} {backend.values[0]}"
    if name == "ROCM_AITER_UNIFIED_ATTN" and it.release is None:
        return unknown(f"{why}: numbers from 0.19.0 on")
    numbers = name == "FLASHINFER" or (name == "ROCM_AITER_UNIFIED_ATTN" and it.since("0.19.0"))
    return known("numbers" if numbers else "tensors", why)


FACTS: Makers = {"scales of the attention backend": scales_of_backend}
