"""Correction of vllm.int8-mla-context."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.weights import stored_dtype


def keeps_integers(target: Any, instance: Any, kv_b_proj: Any) -> bool:
    dtype = stored_dtype(kv_b_proj)
    return dtype is not None and not dtype.is_floating_point


def input_dtype(call: Call, instance: Any, kv_b_proj: Any) -> Any:
    """The dtype that the latent is cast to before kv_b_proj, or None for none: never one of integers."""
    dtype = call()
    if dtype is None or dtype.is_floating_point:
        return dtype
    call.corrected()
    return made_for(kv_b_proj)


def made_for(kv_b_proj: Any) -> Any:
    """The dtype of the inputs that the layer was constructed for."""
    return kv_b_proj.params_dtype
