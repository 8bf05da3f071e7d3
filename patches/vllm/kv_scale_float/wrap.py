"""Correction of vllm.kv-scale-float."""

from __future__ import annotations

from typing import Any

_SCALES = ("_q_scale", "_k_scale", "_v_scale")
#: Modules of the backends that multiply by the numbers. Others read the tensors, and some refuse to serve where a number is not
#: 1 (Triton, ROCm, CUTLASS MLA): they keep what the engine gave them.
READERS = frozenset({"flashinfer", "flashinfer_mla", "flashinfer_mla_sparse", "rocm_aiter_unified_attn"})


def process_weights_after_loading(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`(layer)`: `layer._k_scale` and the like are float32 tensors, one value or one per head; `_k_scale_float` is a float."""
    result = wrapped(*args, **kwargs)
    layer = args[0]
    if type(getattr(layer, "impl", None)).__module__.rpartition(".")[2] in READERS:
        loaded = {f"{name}_float": largest(getattr(layer, name)) for name in _SCALES}
        if any(getattr(layer, name, None) != scale for name, scale in loaded.items()):
            vars(layer).update(loaded)
            wrapped.corrected()
    return result


def largest(scale: Any) -> float:
    return float(scale.max())
