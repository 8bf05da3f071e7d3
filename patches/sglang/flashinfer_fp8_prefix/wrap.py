"""Correction of sglang.flashinfer-fp8-prefix.

`forward_extend` calls `forward_return_lse` of FlashInfer's paged wrapper in the split prefill alone. For the time of one call
the wrapper's method is one that adds the scales, so the engine's own code runs unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute

_METHOD = "forward_return_lse"


def reads_scaled_prefix(target: Any, instance: Any, layer: Any) -> Any:
    """The scales (k, v) by which the cache must be read; None where this call does not read it, or it is not scaled.

    Only an FP8 cache is divided by the scales when it is stored: a checkpoint may bring scales for a cache of 16 bits.
    """
    scales = layer.k_scale_float, layer.v_scale_float
    if scales == (None, None) or scales == (1.0, 1.0):
        return None
    metadata = instance.forward_metadata
    if not metadata.use_ragged or metadata.extend_no_prefix:
        return None
    return scales if is_fp8(instance) else None


def is_fp8(backend: Any) -> bool:
    """Whether the backend reads a cache of FP8 numbers: not, from 0.5.16 on, an FP4 one that it unpacks into FP8 before."""
    if getattr(backend, "prefill_uses_dequant_workspace", False) or getattr(backend, "decode_uses_dequant_workspace", False):
        return False
    return str(backend.indices_updater_prefill.data_type).startswith("torch.float8")


def forward_extend(call: Call, instance: Any, layer: Any) -> Any:
    k_scale, v_scale = call.found
    wrapper = instance.forward_metadata.prefill_wrappers[instance._get_wrapper_idx(layer)]
    reads = getattr(wrapper, _METHOD)
    with attribute(wrapper, _METHOD, call.guard(with_scales(reads, given(k_scale, v_scale)), reads)):
        result = call()
    call.corrected()
    return result


def with_scales(reads: Callable[..., Any], scales: dict[str, float]) -> Callable[..., Any]:
    def forward_return_lse(*args: Any, **kwargs: Any) -> Any:
        return reads(*args, **scales | kwargs)

    return forward_return_lse


def given(k_scale: float | None, v_scale: float | None) -> dict[str, float]:
    """Scales by FlashInfer's keywords; one that the layer lacks is left out."""
    return {name: scale for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)) if scale is not None}
