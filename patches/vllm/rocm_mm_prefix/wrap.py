"""Correction of vllm.rocm-mm-prefix."""

from __future__ import annotations

import sys
from typing import Any

from attnfix.compat.fix import Call

FIRST = "TRITON_ATTN"
#: Backends that say they attend to images both ways, and read no ranges of images
IGNORE = frozenset({"ROCM_ATTN", "ROCM_AITER_UNIFIED_ATTN"})


def attends_both_ways(target: Any, instance: Any, use_mla: bool, use_sparse: bool) -> bool:
    """Whether the model attends to images both ways, and AMD's platform chooses its backend by itself."""
    config = sys.modules["vllm.config"].get_current_vllm_config_or_none()
    model = config.model_config if config is not None else None
    if model is None or use_mla or use_sparse or not model.is_mm_prefix_lm:
        return False
    if reason := stays(config):
        target.leave_out(reason)
    return not reason


def get_backend_priorities(call: Call, instance: Any) -> list[Any]:
    """Returns the engine's list in another order: where TRITON_ATTN does not serve a layer, the engine's choice stands."""
    backends = call()
    ordered = triton_first(backends)
    if backends and backends[0].name in IGNORE and ordered != backends:
        call.corrected()
    return ordered


def triton_first(backends: list[Any]) -> list[Any]:
    return sorted(backends, key=lambda backend: backend.name != FIRST)


def stays(config: Any) -> str | None:
    """Why this server keeps its backends: one of them was named, or another layout of the cache could harm.

    Layers of drafts share a pool of KV with those of the model, and their backend is chosen apart. With an FP8 cache,
    TRITON_ATTN of some releases refuses a query's scale that AITER takes.
    """
    attention = config.attention_config
    if attention.backend is not None or getattr(attention, "backend_per_kind", None):
        return "its attention backends were named"
    if config.kv_transfer_config is not None:
        return f"the KV connector {config.kv_transfer_config.kv_connector} reads the cache, whose layout would change"
    if config.speculative_config is not None:
        return "layers of drafts may keep another layout of the cache"
    if config.cache_config.cache_dtype.startswith("fp8"):
        return "not every backend takes the scales of an FP8 cache"
    return None
