"""Which FlashInfer backends plan for window layers, and whether one plan serves them all."""

from __future__ import annotations

from typing import Any


def plans_for_windows(target: Any, instance: Any, attn_backend: Any) -> bool:
    """An heir of the backend attends by code of its own."""
    dispatch = getattr(attn_backend.dispatch_reason, "name", None)
    return dispatch == "SLIDING_WINDOW" and type(attn_backend).__name__ == "FlashInferAttnBackend"


def alike(model: Any, window: int) -> bool:
    """Whether all attention layers are causal, and their windows the one that the backend plans with."""
    for layer in model.modules():
        kind, size = getattr(layer, "attn_type", None), getattr(layer, "sliding_window_size", None)
        if kind is None or size is None:
            continue
        if getattr(kind, "value", kind) == "encoder_only" or size not in (-1, window):
            return False
    return window >= 0
