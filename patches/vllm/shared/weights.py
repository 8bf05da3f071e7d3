"""What a layer keeps its weight in."""

from __future__ import annotations

from typing import Any

_no_override: Any = None  # torch's; looked up at the first call, since this module is imported without torch, too


def stored_dtype(layer: Any) -> Any:
    """`layer.weight.dtype`, or None where there is no weight.

    The weight is asked for where torch keeps parameters, its own way there takes a microsecond; and the dtype of torch itself:
    most of vLLM's parameters override torch's functions, and another microsecond goes by before they answer the same.
    """
    global _no_override
    if _no_override is None:
        from torch._C import DisableTorchFunctionSubclass as _no_override
    parameters = getattr(layer, "_parameters", None)
    weight = parameters.get("weight") if parameters else None
    if weight is None:
        weight = getattr(layer, "weight", None)
        if weight is None:
            return None
    with _no_override():
        return weight.dtype
