"""What decides sglang.trtllm-mha-window-pages alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers


def _untranslated(it: Deployment) -> Fact:
    """Whether window layers read or write slots of the other pool: in 0.5.9 those of an FP8 cache alone do."""
    if it.release is not None and not it.since("0.5.9"):
        return known(ON, f"sglang {it.release}")
    dtype = it.option("kv-cache-dtype", "auto")
    if dtype.values != ("auto",):
        return (
            dtype
            if not dtype.values
            else known(ON if "fp8" in str(dtype.values[0]) else OFF, f"--kv-cache-dtype {dtype.values[0]}")
        )
    if it.config is None:
        return unknown(NO_CONFIG)
    quantized = "quantization_config" in it.config
    return unknown("a quantised checkpoint may say FP8") if quantized else known(OFF, f"{dtype.why}, sglang {it.release}")


FACTS: Makers = {"slots of the other pool": _untranslated}
