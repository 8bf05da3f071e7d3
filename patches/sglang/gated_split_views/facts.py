"""What decides sglang.gated-split-views alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

_QWEN = "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"
#: Heads of values per head of keys for which one kernel splits the projections
_SPLIT = (1, 2, 4)


def _views(it: Deployment) -> Fact:
    """Whether a layer hands on views of one projection as its gates."""
    if it.config is None:
        return unknown(NO_CONFIG)
    if (architecture := it.architecture()) not in _QWEN:
        return known(OFF, f"architecture {architecture}")
    if (device := it.option("device", "cuda")).values in (("npu",), ("cpu",)):
        return known(OFF, f"{device.why} {device.values[0]}, which has other kernels")
    text = it.text_config()
    values, keys = (text.get(f"linear_num_{name}_heads") for name in ("value", "key"))
    if not (isinstance(values, int) and isinstance(keys, int) and values > 0 and keys > 0):
        return unknown("config.json does not tell linear_num_value_heads and linear_num_key_heads")
    return known(OFF if values // keys in _SPLIT else ON, f"{values} heads of values, {keys} of keys")


FACTS: Makers = {"gates that are views": _views}
