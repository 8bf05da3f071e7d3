"""What decides vllm.kv-scale-float alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers
from attnfix.compat.doctor.vllm import attention_backend, quantization_of


def kv_cache_scales(it: Deployment) -> Fact:
    """Who loads the scales of a quantised KV cache, where the checkpoint has some."""
    if it.config is None:
        return unknown(NO_CONFIG)
    quantization = quantization_of(it)
    method = str(quantization.get("quant_method") or "none")
    if method == "compressed-tensors" and quantization.get("kv_cache_scheme"):
        return known("compressed-tensors", "kv_cache_scheme of quantization_config")
    if method != "none" and it.release is not None and str(it.release) == "0.10.2":
        return unknown(f"quantization {method}: vLLM 0.10.2 forgets the query's scale of any checkpoint that has one")
    return known("others", f"quantization {method}, no kv_cache_scheme of compressed-tensors")


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


FACTS: Makers = {"KV cache scales": kv_cache_scales, "scales of the attention backend": scales_of_backend}
