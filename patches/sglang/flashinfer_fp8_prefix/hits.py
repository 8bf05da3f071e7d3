"""What decides sglang.flashinfer-fp8-prefix alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers


def kv_cache_scales(it: Deployment) -> Fact:
    """What the KV cache is scaled by: the checkpoint's own figures where it is FP8, or nothing."""
    dtype = it.option("kv-cache-dtype", "auto")
    if dtype.values and not str(dtype.values[0]).startswith(("fp8", "auto")):
        return known("none", f"{dtype.why} {dtype.values[0]}")
    if it.given("quantization-param-path"):
        return unknown("--quantization-param-path may bring scales")
    if it.config is None:
        return unknown(NO_CONFIG)
    quantization = it.config.get("quantization_config") or it.text_config().get("quantization_config") or {}
    scheme = [name for name, value in quantization.items() if name.startswith("kv_cache") and value]
    if not scheme:
        method = quantization.get("quant_method")
        if method and str(method).startswith("modelopt"):
            return unknown(f"quantization {method}, whose scheme of the KV cache lies in hf_quant_config.json")
        return known("none", "quantization_config has no scheme of the KV cache")
    if dtype.values == ("auto",):
        return unknown(f"--kv-cache-dtype auto may follow the checkpoint's {scheme[0]}")
    return (
        known("calibrated FP8", f"{dtype.why} {dtype.values[0]}, {scheme[0]} of quantization_config") if dtype.values else dtype
    )


FACTS: Makers = {"KV cache scales": kv_cache_scales}
