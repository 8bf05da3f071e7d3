"""What decides vllm.mixed-precision-stale-bits alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.vllm import kv_cache_dtype

_SKIP = "kv-cache-dtype-skip-layers"


def _formats(it: Deployment) -> Fact:
    """Whether some layers keep the model's dtype in the cache, beside others of FP8."""
    skip = it.option(_SKIP, "")
    if not skip.values or not skip.values[0]:
        return Fact((OFF,) if skip.values else (), skip.why)
    cache = kv_cache_dtype(it)
    if not cache.values:
        return cache
    one_format = str(cache.values[0]).startswith(("auto", "bfloat16", "float16", "turboquant"))
    return known(OFF if one_format else ON, f"--{_SKIP}, {cache.why} {cache.values[0]}")


FACTS: Makers = {"layers of FP8 and others in the KV cache": _formats}
