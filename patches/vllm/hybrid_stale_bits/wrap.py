"""Correction of vllm.hybrid-stale-bits."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.cleared_blocks import clear, has_foreign_states, new_blocks, on_cpu, sizes_of


def blocks_to_clear(target: Any, instance: Any, scheduler_output: Any) -> list[int]:
    groups = instance.kv_cache_config.kv_cache_groups
    if len(groups) < 2:
        return []
    specs = [group.kv_cache_spec for group in groups]
    return new_blocks(scheduler_output, sizes_of(specs)) if has_foreign_states(specs) and not on_cpu() else []


def clear_blocks(call: Call, instance: Any) -> Any:
    if clear(instance, call.found):
        call.corrected(len(call.found))
    else:
        call.target.leave_out("its layers' pages of the KV cache are not of one size")
    return call()
