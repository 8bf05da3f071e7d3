"""Correction of sglang.hybrid-chunk-metadata.

The model asks the backend it sees whether it has `init_mha_chunk_metadata`, and calls it. A hybrid backend gets one, which
hands over to the backend that will attend, where that one has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_METHOD = "init_mha_chunk_metadata"


def init_hybrid(call: Any, instance: Any) -> Any:
    """`HybridAttnBackend(model_runner, prefill_backend, decode_backend)`."""
    return _with_plan(call, instance, lambda: instance.prefill_backend)


def init_hybrid_linear(call: Any, instance: Any) -> Any:
    """`HybridLinearAttnBackend(full_attn_backend, linear_attn_backend, full_attn_layers)`."""
    return _with_plan(call, instance, lambda: instance.attn_backend_list[0])


def _with_plan(call: Any, instance: Any, attends: Callable[[], Any]) -> Any:
    result = call()
    plan = getattr(attends(), _METHOD, None)
    if plan is not None and not hasattr(instance, _METHOD):
        setattr(instance, _METHOD, handing_over(plan, call.corrected))
    return result


def handing_over(plan: Callable[..., Any], count: Callable[[], None]) -> Callable[..., Any]:
    def init_mha_chunk_metadata(forward_batch: Any, disable_flashinfer_ragged: bool = False) -> Any:
        """Once per batch with cached tokens. trtllm_mla's takes the batch alone."""
        count()
        return plan(forward_batch, True) if disable_flashinfer_ragged else plan(forward_batch)

    return init_mha_chunk_metadata
