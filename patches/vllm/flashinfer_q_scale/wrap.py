"""Correction of vllm.flashinfer-q-scale.

Who multiplies scores by the number of the query's scale, in `FlashInferImpl.forward` of 0.25.0-0.33.0:

| path | when | here |
|---|---|---|
| FlashInfer's wrappers of prefills and decodes | always; for NVFP4 on fa2 (from 0.32.0) by 1 | corrected |
| its wrapper with sinks (from 0.28.0) | always, in a factor beside the key's scale | corrected |
| prefills of several ranks | never | left alone |
| XQA | where the query is FP8 | left alone |
| TRT-LLM's kernels | always, in a factor that the implementation keeps | left alone |

So the layer has to keep its number: a step may have FP8 prefills beside decodes that are not, as on Hopper.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from attnfix.compat.fix import Call


def native(target: Any, instance: Any, layer: Any, attn_metadata: Any) -> list[str]:
    """The parts of the step that wrappers compute, where they are told a scale of the query other than 1."""
    if attn_metadata is None or getattr(layer, "_q_scale_float", 1.0) == 1.0:
        return []
    parts = ["decode"] if instance.dcp_world_size > 1 else ["prefill", "decode"]
    return [part for part in parts if hasattr(getattr(attn_metadata, part), "wrapper")]


def forward(call: Call, instance: Any, layer: Any, attn_metadata: Any) -> Any:
    """The engine's own code, with metadata whose wrappers are told what is true of the query that they get."""
    own, told = copy(attn_metadata), []
    for part in call.found:
        half = copy(getattr(own, part))
        half.wrapper = Told(half.wrapper, instance.scale * layer._k_scale_float, call)
        setattr(own, part, half)
        told.append(half.wrapper)
    try:
        result = call(attn_metadata=own)
    finally:
        for wrapper in told:
            del wrapper.run  # a circle, which would keep the call's tensors until Python collects it
    if rows := sum(wrapper.rows for wrapper in told):
        call.corrected(rows)
    return result


class Told:
    """One of FlashInfer's wrappers, which multiplies no query by a scale that it was not divided by.

    `without`: what scores are multiplied by, without it. Everything else is the wrapper's, its class for `isinstance`, too.
    """

    def __init__(self, wrapper: Any, without: float, call: Call):
        self.rows, self._told, self._without = 0, wrapper, without
        self.run = call.guard(self.run_told, wrapper.run)

    @property  # type: ignore[misc]  # object's can be set
    def __class__(self) -> Any:
        return type(self._told)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._told, name)

    def run_told(self, query: Any, kv_cache: Any, *sinks: Any, **options: Any) -> Any:
        """`sinks`: of the wrapper with sinks, and the factor."""
        if query.dtype.itemsize > 1 and (sinks or options.get("q_scale", 1.0) != 1.0):
            if sinks:
                sinks = sinks[0], self._without
            else:
                options["q_scale"] = 1.0
            self.rows += len(query)
        return self._told.run(query, kv_cache, *sinks, **options)
