"""What decides vllm.flashinfer-q-scale alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, NO_GPU, Deployment, Makers
from attnfix.compat.doctor.vllm import kv_cache_dtype, quantization_of, recurrent_layers

_COMPUTED, _KEPT = "calculate-kv-scales", "attention-config.disable_flashinfer_q_quantization"


def _scales(it: Deployment) -> Fact:
    """Whether layers have a scale of queries: of a checkpoint, or (up to 0.27.1) computed from the first batch."""
    if it.config is None:
        return unknown(NO_CONFIG)
    method = str(quantization_of(it).get("quant_method") or "none")
    if method != "none":
        return unknown(
            f"quantization {method}: whether its weights have a q_scale; it matters for --attention-backend FLASHINFER alone"
        )
    computed = it.option(_COMPUTED, OFF)
    if computed.values != (ON,):
        return Fact(("none",) if computed.values else (), f"quantization none, {computed.why}")
    if it.release is None or recurrent_layers(it).values == (ON,):
        return unknown(f"{computed.why}: up to 0.27.1, and not for hybrid models")
    return known("none" if it.since("0.28.0") else "computed", computed.why)


def _queries(it: Deployment) -> Fact:
    """What dtype queries have that FlashInfer's wrappers get."""
    asked = it.option(_KEPT, OFF)
    if not asked.values:
        return asked
    if str(asked.values[0]).lower() in ("true", "1", ON):
        return known("the model's", asked.why)
    if it.gpu is None:
        return unknown(NO_GPU)
    if it.gpu.generation not in (9, 10):
        return known("the model's", f"FlashInfer takes no FP8 queries on {it.gpu}")
    cache = kv_cache_dtype(it)
    if cache.values and not str(cache.values[0]).startswith(("fp8", "nvfp4")):
        return known("the model's", f"{cache.why}: the KV cache is not quantised")
    if it.gpu.generation == 9:
        return unknown(f"{it.gpu}: FP8 in prefills, and the model's in decodes that XQA does not serve")
    return known("FP8", str(it.gpu)) if cache.values else cache


FACTS: Makers = {"scales of queries": _scales, "queries of FlashInfer": _queries}
