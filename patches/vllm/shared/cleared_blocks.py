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
_MANY = 1_000_003  # blocks, to find their dimension in a shape
#: Runner -> (its config of the cache, what clears the blocks of that cache or None)
_zeroers: WeakKeyDictionary[Any, tuple[Any, Any]] = WeakKeyDictionary()


def sizes_of(specs: Sequence[Any]) -> list[int]:
    """Tokens of a block, of each group of layers; 0 of one whose blocks hold no keys and values, or are not cleared."""
    return [spec.block_size if type(spec).__name__ in ATTENTION else 0 for spec in specs]


def new_blocks(step: Any, sizes: Sequence[int]) -> list[int]:
    """Of a SchedulerOutput, blocks that hold nothing of the requests that get them."""
    cached = step.scheduled_cached_reqs
    given = [(new.block_ids, new.num_computed_tokens) for new in step.scheduled_new_reqs]
    for name, blocks, computed in zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens):
        if blocks is not None:  # a resumed request gets all of its blocks anew
            given.append((blocks, computed if name in cached.resumed_req_ids else 0))
    cleared = [(blocks, held, size) for groups, held in given for blocks, size in zip(groups, sizes) if size]
    return [block for blocks, held, size in cleared for block in blocks[filled(held, size) :]]


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
    made: Any = getattr(sys.modules[_WORKER], "KVBlockZeroer", _ByLayer)
    full = sys.modules[_INTERFACE].FullAttentionSpec
    groups = []
    for group in chain.from_iterable(runner.attn_groups):
        spec = group.kv_cache_spec
        if type(spec).__name__ not in ATTENTION:
            continue
        same = {name: getattr(spec, name) for name in ("block_size", "num_kv_heads", "head_size", "dtype")}
        groups.append(SimpleNamespace(**{**vars(group), "kv_cache_spec": full(**same)}))
    given = dict(
        device=runner.device, attn_groups_iter=groups,
        pin_memory=sys.modules[_MEMORY].is_pin_memory_available(),
        kernel_block_sizes=_kernel_block_sizes(runner), cache_dtype=runner.cache_config.cache_dtype,
        runner_only_attn_layers=getattr(runner, "runner_only_attn_layers", set()),
        static_forward_context=runner.compilation_config.static_forward_context,
        max_concurrency=getattr(runner.vllm_config, "max_concurrent_batches", 1),
        num_blocks=runner.kv_cache_config.num_blocks,
    )  # fmt: skip
    try:
        zeroer = made(**_known(made.__init__, given))
        if hasattr(zeroer, "init_meta"):  # up to 0.22.1
            zeroer.init_meta(**_known(zeroer.init_meta, given))
    except AssertionError:
        return None
    return zeroer


class _ByLayer:
    """In the place of the engine's, for releases up to 0.17.0: one launch for each layer."""

    max_concurrency = 1

    def __init__(
        self, device: Any, pin_memory: bool, attn_groups_iter: list[Any], kernel_block_sizes: list[int],
        static_forward_context: dict[str, Any], num_blocks: int,
    ):  # fmt: skip
        self.device, self.pin_memory, self.num_blocks = device, pin_memory, num_blocks
        self.caches = {}  # address -> [blocks of the kernel, …]
        for group in attn_groups_iter:
            spec, size = group.kv_cache_spec, kernel_block_sizes[group.kv_cache_group_id]
            shape = group.backend.get_kv_cache_shape(_MANY, size, spec.num_kv_heads, spec.head_size)
            for name in group.layer_names:
                cache = static_forward_context[name].kv_cache
                cache = cache[0] if isinstance(cache, list) else cache  # of the one engine that a pipeline has
                self.caches[cache.data_ptr()] = cache.movedim(shape.index(_MANY), 0)
        assert all(len(cache) % num_blocks == 0 for cache in self.caches.values())

    def zero_block_ids(self, block_ids: list[int]) -> None:
        import torch

        for cache in self.caches.values():
            split = len(cache) // self.num_blocks
            rows = [block * split + at for block in block_ids for at in range(split)]
            cache.index_fill_(0, torch.tensor(rows, pin_memory=self.pin_memory).to(self.device, non_blocking=True), 0)


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


def has_foreign_states(specs: Sequence[Any]) -> bool:
    """Whether layers of attention share blocks with states, some of which are in another format than keys and values."""
    attention = [spec for spec, size in zip(specs, sizes_of(specs)) if size]
    states = [spec for spec in specs if type(spec).__name__ == "MambaSpec"]
    formats = {dtype for spec in states for dtype in spec.dtypes}
    return len(attention) + len(states) == len(specs) and any(formats - {spec.dtype} for spec in attention)
