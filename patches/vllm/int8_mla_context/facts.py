"""What decides vllm.int8-mla-context alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers
from attnfix.compat.doctor.vllm import formats_of, quantization_of


def _weight(it: Deployment) -> Fact:
    """Whether kv_b_proj is kept as int8. Read for compressed-tensors, whose configuration says it."""
    if it.config is None:
        return unknown(NO_CONFIG)
    quantization = quantization_of(it)
    method = quantization.get("quant_method")
    if method is None:
        asked = it.option("quantization", "none")
        return known("others", "no quantization_config, no --quantization") if asked.values == ("none",) else asked
    if method in ("quark", "bitsandbytes"):
        return unknown(f"what quantization {method} makes of kv_b_proj was not read")
    if method != "compressed-tensors":
        return known("others", f"quantization {method}")
    kept = formats_of(it, "kv_b_proj")
    if not kept.values:
        return kept
    return known("int8" if "int-quantized" in kept.values else "others", f"{method}, {', '.join(map(str, kept.values))}")


FACTS: Makers = {
    "weight of kv_b_proj": _weight,
}
