"""What decides vllm.quantized-mla-context alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attnfix.compat.doctor.condition import Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, NO_GPU, Deployment, Makers
from attnfix.compat.doctor.gpus import NVIDIA
from attnfix.compat.doctor.vllm import quantization_of

_PACKED = ("awq", "awq_marlin", "gptq", "gptq_marlin", "auto-round", "auto_gptq")


_FP8 = ("fp8", "fbgemm_fp8")


def _kv_b_proj(it: Deployment) -> Fact:
    """How the weight of kv_b_proj is kept: as floats, or packed into integers."""
    if it.config is None:
        return unknown(NO_CONFIG)
    quantization = quantization_of(it)
    asked = it.option("quantization", "")
    method = str(quantization.get("quant_method") or next(iter(asked.values), ""))
    if not method:
        return known("floats", "no quantization_config, no --quantization") if asked.values else asked
    left_out = [name for name in _left_out(quantization) if "kv_b_proj" in name or name.endswith("self_attn")]
    if left_out:
        return known("floats", f"{method}, which leaves out {left_out[0]}")
    formats = {group.get("format") for group in (quantization, *(quantization.get("config_groups") or {}).values())}
    if method in _PACKED or (method == "compressed-tensors" and "pack-quantized" in formats):
        return known("packed", f"quantization {method}")
    if method in _FP8 or (method == "compressed-tensors" and "float-quantized" in formats):
        return _fp8(it, method)
    return unknown(f"how quantization {method} keeps kv_b_proj was not read")


def _left_out(quantization: Mapping[str, Any]) -> Iterator[str]:
    """Names of layers that the quantisation leaves as they are, in the words of the several methods."""
    for key in ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules"):
        yield from map(str, quantization.get(key) or ())


def _fp8(it: Deployment, method: str) -> Fact:
    """FP8 weights stay as they are where the GPU multiplies FP8; else Marlin repacks them."""
    if it.truth("VLLM_TEST_FORCE_FP8_MARLIN"):
        return known("packed", "VLLM_TEST_FORCE_FP8_MARLIN")
    if it.gpu is None:
        return unknown(NO_GPU)
    if it.gpu.maker == NVIDIA and (it.gpu.capability or 0) < 89:
        return known("packed", f"quantization {method}, by Marlin on {it.gpu}")
    return known("floats", f"quantization {method} on {it.gpu}")


FACTS: Makers = {
    "kv_b_proj": _kv_b_proj,
}
