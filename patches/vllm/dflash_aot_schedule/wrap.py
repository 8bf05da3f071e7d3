"""Correction of vllm.dflash-aot-schedule."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def set_attn(call: Call, instance: Any) -> Any:
    """The drafter's own builders, once they are made: a windowed one leaves the schedule to the kernel's launch."""
    result = call()
    scheduled = [
        builder for builder in builders(instance.attn_groups) if builder.aot_schedule and has_window(builder.kv_cache_spec)
    ]
    for builder in scheduled:
        builder.aot_schedule = False
    if scheduled:
        call.corrected()
    return result


def builders(attn_groups: Any) -> list[Any]:
    """FlashAttention's, which alone say whether they make a schedule."""
    found = [builder for groups in attn_groups for group in groups for builder in group.metadata_builders]
    return [builder for builder in found if hasattr(builder, "aot_schedule")]


def has_window(spec: Any) -> bool:
    """Whether layers of this KV cache have a sliding window; `spec` may be one for several kinds of layers."""
    several = getattr(spec, "kv_cache_specs", None)
    return any(map(has_window, several.values())) if several else bool(getattr(spec, "sliding_window", None))
