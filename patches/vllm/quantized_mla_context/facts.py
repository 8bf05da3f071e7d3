"""What decides vllm.quantized-mla-context alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from attnfix.compat.doctor.compressed_tensors import names
from attnfix.compat.doctor.condition import Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, NO_GPU, Deployment, Makers
from attnfix.compat.doctor.gpus import NVIDIA
from attnfix.compat.doctor.vllm import formats_of, prefixes_of, quantization_of

_PACKED = ("awq", "awq_marlin", "gptq", "gptq_marlin", "auto-round", "auto_gptq")


_FP8 = ("fp8", "fbgemm_fp8")


def _kv_b_proj(it: Deployment) -> Fact:
    """How the weight of kv_b_proj is kept: as floats, or as integers, several packed into one or not."""
    if it.config is None:
        return unknown(NO_CONFIG)
    quantization = quantization_of(it)
    asked = it.option("quantization", "")
    method = str(quantization.get("quant_method") or next(iter(asked.values), ""))
    if not method:
        return known("floats", "no quantization_config, no --quantization") if asked.values else asked
    if method == "compressed-tensors":
        return _compressed(it)
    if method.startswith("modelopt") and _excluded(it, quantization):
        return known("floats", f"{method}, which leaves kv_b_proj of every layer out")
    left_out = [name for name in _left_out(quantization) if "kv_b_proj" in name or name.endswith("self_attn")]
    if left_out:
        return known("floats", f"{method}, which leaves out {left_out[0]}")
    if method in _PACKED:
        return known("packed", f"quantization {method}")
    if method in _FP8:
        return _fp8(it, method)
    return unknown(f"how quantization {method} keeps kv_b_proj was not read")


def _compressed(it: Deployment) -> Fact:
    """Layers may differ: one that is packed is enough."""
    kept = formats_of(it, "kv_b_proj")
    why = f"{kept.why}: {' and '.join(map(str, kept.values))}"
    if {"pack-quantized", "int-quantized"} & set(kept.values):
        return known("packed", why)
    if kept.values == ("as it is",):
        return known("floats", f"{kept.why}, which leaves kv_b_proj of every layer out")
    if kept.values and set(kept.values) <= {"as it is", "float-quantized"}:
        return _fp8(it, "compressed-tensors")
    return unknown(f"how {why} keeps kv_b_proj was not read") if kept.values else kept


def _excluded(it: Deployment, quantization: Mapping[str, Any]) -> bool:
    """Whether patterns of ModelOpt leave kv_b_proj of every layer out."""
    patterns = list(_left_out(quantization))
    layers = names(it.text_config(), "kv_b_proj", *prefixes_of(it))
    return all(any(fnmatchcase(layer, pattern) for pattern in patterns) for layer in layers)


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
