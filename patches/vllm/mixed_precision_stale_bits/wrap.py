"""Correction of vllm.mixed-precision-stale-bits."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.cleared_blocks import clear, new_blocks, on_cpu, sizes_of


def blocks_to_clear(target: Any, instance: Any, scheduler_output: Any) -> list[int]:
    groups = instance.kv_cache_config.kv_cache_groups
    if len(groups) < 2:
        return []
    specs = [group.kv_cache_spec for group in groups]
    if not is_mixed(specs) or on_cpu():
        return []
    if copies_later(instance):
        target.leave_out("a KV connector may copy blocks away after their owner has changed")
        return []
    return new_blocks(scheduler_output, sizes_of(specs))


def copies_later(runner: Any) -> bool:
    """Model Runner V2 lets a connector take its copies behind this look, V1 before it."""
    return type(runner).__module__.startswith("vllm.v1.worker.gpu.") and runner.vllm_config.kv_transfer_config is not None


def is_mixed(specs: list[Any]) -> bool:
    """Whether groups of layers keep keys and values in several formats. Beside states, the engine clears blocks."""
    return all(sizes_of(specs)) and len({(spec.dtype, getattr(spec, "kv_quant_mode", None)) for spec in specs}) > 1


def clear_blocks(call: Call, instance: Any) -> Any:
    """Before the engine copies blocks into them."""
    if clear(instance, call.found):
        call.corrected(len(call.found))
    else:
        call.target.leave_out("its layers' pages of the KV cache are not of one size")
    return call()
