"""Correction of vllm.window-blocks-not-zeroed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.cleared_blocks import clear, new_blocks, on_cpu

#: Specs of layers with a window, whose blocks the engine does not clear
WINDOWS = frozenset({"SlidingWindowSpec", "ChunkedLocalAttentionSpec"})


def blocks_to_clear(target: Any, instance: Any, scheduler_output: Any) -> list[int]:
    config = instance.kv_cache_config
    if len(config.kv_cache_groups) < 2 or not config.needs_kv_cache_zeroing:
        return []
    specs = [group.kv_cache_spec for group in config.kv_cache_groups]
    if not are_foreign(specs) or on_cpu():
        return []
    return new_blocks(scheduler_output, sizes_of(specs))


def are_foreign(specs: Sequence[Any]) -> bool:
    """Whether layers with a window share their blocks with states or keys of another format."""
    formats = set(chain.from_iterable(getattr(spec, "dtypes", None) or (getattr(spec, "dtype", None),) for spec in specs))
    return any(formats - {spec.dtype, None} for spec in specs if type(spec).__name__ in WINDOWS)


def sizes_of(specs: Sequence[Any]) -> list[int]:
    """Tokens of a block, of each group of layers; 0 of one that has no window."""
    return [spec.block_size if type(spec).__name__ in WINDOWS else 0 for spec in specs]


def clear_blocks(call: Call, instance: Any) -> Any:
    """Before the engine copies blocks into them."""
    if clear(instance, call.found):
        call.corrected(len(call.found))
    else:
        call.target.leave_out("its layers' pages of the KV cache are not of one size")
    return call()
