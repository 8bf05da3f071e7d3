"""What decides how a vLLM deployment keeps its KV cache, and by what it scales it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .condition import Fact, known, unknown
from .deployment import NO_CONFIG, Deployment


def quantization_of(it: Deployment) -> Mapping[str, Any]:
    """The checkpoint's quantization_config; empty where it has none."""
    assert it.config is not None
    return it.config.get("quantization_config") or it.text_config().get("quantization_config") or {}


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


def scales_of_backend(it: Deployment, backend: Fact) -> Fact:
    """What the attention backend multiplies by: the layer's tensors, or their copies as numbers."""
    if not backend.values:
        return backend
    name, why = backend.values[0], f"{backend.why} {backend.values[0]}"
    if name == "ROCM_AITER_UNIFIED_ATTN" and it.release is None:
        return unknown(f"{why}: numbers from 0.19.0 on")
    numbers = name == "FLASHINFER" or (name == "ROCM_AITER_UNIFIED_ATTN" and it.since("0.19.0"))
    return known("numbers" if numbers else "tensors", why)


def kv_cache_dtype(it: Deployment) -> Fact:
    asked = it.option("kv-cache-dtype", "auto")
    if asked.values != ("auto",):
        return asked
    if it.config is None:
        return unknown(NO_CONFIG)
    schemes = [name for name, value in quantization_of(it).items() if name.startswith("kv_cache") and value]
    return unknown(f"--kv-cache-dtype auto may follow the checkpoint's {schemes[0]}") if schemes else asked
