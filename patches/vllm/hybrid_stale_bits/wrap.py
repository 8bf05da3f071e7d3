"""Correction of vllm.hybrid-stale-bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.cleared_blocks import ATTENTION, new_blocks, on_cpu

#: Specs of layers whose blocks hold keys and values. Those of latents are cleared here, too
KEYS_AND_VALUES = ATTENTION | {"MLAAttentionSpec"}


def blocks_to_clear(target: Any, instance: Any, scheduler_output: Any) -> list[int]:
    groups = instance.kv_cache_config.kv_cache_groups
    if len(groups) < 2:
        return []
    # Of a pipeline, a rank without states has no stale bits, and its backend keeps its own layout
    if not are_foreign([group.kv_cache_spec for group in groups if group.layer_names]) or on_cpu():
        return []
    return new_blocks(scheduler_output, sizes_of([group.kv_cache_spec for group in groups]))


def are_foreign(specs: Sequence[Any]) -> bool:
    """Whether the pool has states in another format than its keys and values."""
    states = {dtype for spec in specs if type(spec).__name__ == "MambaSpec" for dtype in spec.dtypes}
    return any(states - {spec.dtype} for spec in specs if type(spec).__name__ in KEYS_AND_VALUES)


def sizes_of(specs: Sequence[Any]) -> list[int]:
    """Tokens of a block, of each group of layers; 0 of one with states."""
    return [spec.block_size if type(spec).__name__ in KEYS_AND_VALUES else 0 for spec in specs]


def clear_blocks(call: Call, instance: Any) -> Any:
    """On the step's stream, ahead of all that it writes."""
    import torch

    pages = pages_of(instance)
    if not pages:
        call.target.leave_out("a tensor of its KV cache is not made of whole blocks")
        return call()
    ids = torch.tensor(call.found, device="cpu", pin_memory=instance.pin_memory).to(instance.device, non_blocking=True)
    for page in pages:
        clear(page, ids)
    call.corrected(len(call.found))
    return call()


def clear(page: Any, ids: Any) -> None:
    page.index_fill_(0, ids, 0)


def pages_of(runner: Any) -> list[Any]:
    """[blocks, int64 of a block], of each tensor of the pool that layers of attention have. A block belongs to one group of
    layers, in all tensors. Where ranks have less memory than others, a tensor ends with blocks that nobody uses. Empty, if one
    is not made of whole blocks, one behind the other."""
    import torch

    found = {}
    for group in runner.kv_cache_config.kv_cache_groups:
        spec = group.kv_cache_spec
        if type(spec).__name__ not in KEYS_AND_VALUES:
            continue
        for name in group.layer_names:
            cache = runner.compilation_config.static_forward_context[name].kv_cache[0]
            memory = cache.untyped_storage()
            if not in_rows(cache, spec.page_size_bytes):
                return []
            whole = torch.empty(0, dtype=torch.int64, device=runner.device).set_(memory)
            found[memory.data_ptr()] = whole.view(-1, spec.page_size_bytes // 8)
    return list(found.values())


def in_rows(cache: Any, page: int) -> bool:
    """Whether blocks of so many bytes follow each other in its memory, each in one piece. Kernels may see a block as several.
    In [2, blocks, …], as FlashAttention has it without states, all keys precede the values: the largest step is half of all."""
    total = cache.untyped_storage().nbytes()
    step = max(stride for stride, count in zip(cache.stride(), cache.shape) if count > 1) * cache.element_size()
    return page % 8 == page % step == total % page == 0 and cache.numel() * cache.element_size() == total
