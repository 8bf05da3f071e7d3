"""Blocks that requests get in a step, and their bits cleared before it, where layers of several formats share a pool.

A block holds the bits of its former owner. In another format they may read as NaN, which attention takes in behind a request's
last token: a kernel multiplies by zero what is masked. The engine's own `KVBlockZeroer` clears them with one launch, on the
stream of the step, ahead of all that the step writes.

Some blocks that a request begins with hold keys and values, of a cached prefix or from a connector. Their tokens are counted as
computed, and the blocks stay. So does one that is filled in part.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from inspect import signature
from itertools import chain
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

_WORKER, _INTERFACE = "vllm.v1.worker.utils", "vllm.v1.kv_cache_interface"
_PLATFORMS, _MEMORY = "vllm.platforms", "vllm.utils.platform_utils"
#: Groups of layers whose blocks hold a request's own keys and values, and nothing else
ATTENTION = frozenset({"FullAttentionSpec", "SlidingWindowSpec", "ChunkedLocalAttentionSpec"})
#: Runner -> (its config of the cache, what clears the blocks of that cache or None)
_zeroers: WeakKeyDictionary[Any, tuple[Any, Any]] = WeakKeyDictionary()


def sizes_of(specs: Sequence[Any]) -> list[int]:
    """Tokens of a block, of each group of layers; 0 of one whose blocks hold no keys and values, or are not cleared."""
    return [spec.block_size if type(spec).__name__ in ATTENTION else 0 for spec in specs]


def new_blocks(step: Any, sizes: Sequence[int]) -> list[int]:
    """Of a SchedulerOutput, blocks that hold nothing of the requests that get them."""
    cached = step.scheduled_cached_reqs
    new = [(one.block_ids, one.num_computed_tokens) for one in step.scheduled_new_reqs]
    resumed = resumed_of(cached)
    more = [  # a resumed request gets all of its blocks anew
        (blocks, computed if name in resumed else 0)
        for name, blocks, computed in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens)
        if blocks is not None
    ]
    cleared = [(blocks, held, size) for groups, held in new + more for blocks, size in zip(groups, sizes) if size]
    return [block for blocks, held, size in cleared for block in blocks[filled(held, size) :]]


def resumed_of(cached: Any) -> set[str]:
    """Of a CachedRequestData, the requests that go on behind a preemption."""
    if hasattr(cached, "resumed_req_ids"):
        return cached.resumed_req_ids
    return {name for name, again in zip(cached.req_ids, cached.resumed_from_preemption) if again}  # up to 0.11.0


def filled(computed: int, size: int) -> int:
    """Blocks in which computed tokens are."""
    return -(-computed // size)


def clear(runner: Any, blocks: list[int]) -> bool:
    """Whether it can be done with this runner's cache."""
    config, zeroer = _zeroers.get(runner, (None, None))
    if config is not runner.kv_cache_config:  # the first step, or behind a cache that was made for profiling
        zeroer = _zeroer(runner)
        _zeroers[runner] = runner.kv_cache_config, zeroer
    if zeroer is None:
        return False
    if not hasattr(zeroer, "max_concurrency"):
        zeroer._id_cap = 0  # else a step ahead overwrites the ids that are still to be copied
    zeroer.zero_block_ids(blocks)
    return True


def _zeroer(runner: Any) -> Any:
    """The engine's for all layers of attention: by itself it leaves out those with a window."""
    if not __debug__ or any(getattr(tensor, "block_stride", 0) for tensor in runner.kv_cache_config.kv_cache_tensors):
        return None  # its assertions tell whether pages are of one size, and layers that lie within one block are none
    made: Any = sys.modules[_WORKER].KVBlockZeroer
    full = sys.modules[_INTERFACE].FullAttentionSpec
    layers, sizes, groups = runner.compilation_config.static_forward_context, _kernel_block_sizes(runner), []
    for group in chain.from_iterable(runner.attn_groups):
        spec = group.kv_cache_spec
        if type(spec).__name__ not in ATTENTION:
            continue
        count = runner.kv_cache_config.num_blocks * (spec.block_size // sizes[group.kv_cache_group_id])
        if any(count not in _tensor(layers[name].kv_cache).shape for name in group.layer_names):
            return None
        same = {name: getattr(spec, name) for name in ("block_size", "num_kv_heads", "head_size", "dtype")}
        groups.append(SimpleNamespace(**{**vars(group), "kv_cache_spec": full(**same)}))
    given = dict(
        device=runner.device, attn_groups_iter=groups, pin_memory=sys.modules[_MEMORY].is_pin_memory_available(),
        kernel_block_sizes=sizes, cache_dtype=runner.cache_config.cache_dtype, static_forward_context=layers,
        runner_only_attn_layers=getattr(runner, "runner_only_attn_layers", set()),
        max_concurrency=getattr(runner.vllm_config, "max_concurrent_batches", 1),
    )  # fmt: skip
    try:
        zeroer = made(**_known(made.__init__, given))
        if hasattr(zeroer, "init_meta"):  # up to 0.22.1
            zeroer.init_meta(**_known(zeroer.init_meta, given))
    except AssertionError:
        return None
    return zeroer


def _tensor(cache: Any) -> Any:
    """Up to 0.18.1 a layer has a list, of a pipeline's parts."""
    return cache[0] if isinstance(cache, list) else cache


def _kernel_block_sizes(runner: Any) -> list[int]:
    """Of each group: kernels may see a block as several smaller ones. Model Runner V2 splits none up to 0.21.0."""
    for owner in (runner, getattr(runner, "block_tables", None)):
        for name in ("_kernel_block_sizes", "kernel_block_sizes"):
            if getattr(owner, name, None):
                return list(getattr(owner, name))
    return [group.kv_cache_spec.block_size for group in runner.kv_cache_config.kv_cache_groups]


def _known(function: Any, given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in signature(function).parameters if name in given}


def on_cpu() -> bool:
    """Whose kernels multiply nothing that is masked."""
    return bool(sys.modules[_PLATFORMS].current_platform.is_cpu())
