"""Proof of sglang.mamba-flush: prompts whose states the radix cache keeps, a flush, and new prompts.

Spared: states that were given back before the flush, and a flush of a server that has answered nothing.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation
from attnfix.patches.lab.sglang.engine import accepted, module

from . import wrap

_POOLS, _TREE = "sglang.srt.mem_cache.memory_pool", "sglang.srt.mem_cache.mamba_radix_cache"
_PARAMS = "sglang.srt.configs.mamba_utils"
_STATES = 12


class Case(NamedTuple):
    """How many prompts the radix cache keeps a state of, and how many give theirs back; kimi: of a model with three windows."""

    kept: int
    freed: int = 0
    kimi: bool = False
    where: str = ""


class Proof(Cases):
    modules = ("sglang.srt.layers.quantization", _POOLS, _TREE, _PARAMS)
    may_lack = (_TREE, _PARAMS)
    kernel = "none"
    measure = "share of new prompts that begin with another one's state"
    needs = f"{_POOLS}:MambaPool.free: temporal"
    absent = "a state is zeroed when a prompt gets it"
    bug = (Case(5), Case(_STATES), Case(1, 7), Case(4, 3, kimi=True, where=f"{_PARAMS}:KimiLinearCacheParams"))
    spared = (Case(0), Case(0, 9), Case(0, 9, kimi=True, where=f"{_PARAMS}:KimiLinearCacheParams"))
    broken = {
        "the correction does nothing": (wrap.wipe, lambda real, cache: None),
        "the last layer is missed": (wrap.wipe, lambda real, cache: cache.temporal[:-1].zero_()),
        "windows of convolutions are missed": (wrap.wipe, lambda real, cache: cache.temporal.zero_()),
    }

    def prepare(self) -> None:
        super().prepare()
        if _TREE not in self.engine or _PARAMS not in self.engine:
            raise NoSuchPath("no radix cache keeps states")

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        draw, pool = random.Random(seed), _pool(self.engine[_PARAMS], case.kimi)
        allocator = module("mem_cache.allocator").TokenToKVPoolAllocator(
            512, dtype=torch.float16, device="cpu", kvcache=None, need_sort=False
        )
        kind, params = self.engine[_TREE].MambaRadixCache, module("mem_cache.cache_init_params")
        given = {"req_to_token_pool": pool, "token_to_kv_pool_allocator": allocator, "page_size": 1, "disable": False}
        tree = kind(params.CacheInitParams(**given)) if params else kind(**accepted(kind, given))  # from 0.5.6, before
        states = pool.mamba_pool.alloc(case.kept + case.freed)
        for tensor in _tensors(pool):
            tensor[:, states] = 1.0
        for slot in states[: case.kept]:
            prompt = [draw.randrange(1000) for _ in range(9)]
            key = module("mem_cache.radix_cache").RadixKey(prompt, None)
            tree.insert(key, allocator.alloc(9), slot.unsqueeze(0))
        pool.mamba_pool.free(states[case.kept :])
        tree.reset()
        pool.clear()
        allocator.clear()
        begun = pool.mamba_pool.alloc(_STATES)
        stale = torch.stack([tensor[:, begun].flatten(2).any(-1).any(0) for tensor in _tensors(pool)]).any(0)
        bits = hashlib.sha256(repr((begun.tolist(), stale.tolist())).encode()).hexdigest()
        return Observation(float(stale.double().mean()), bits)


def _tensors(pool: Any) -> list[Any]:
    cache = pool.mamba_pool.mamba_cache
    return [*(cache.conv if isinstance(cache.conv, list) else [cache.conv]), cache.temporal]


def _pool(home: Any, kimi: bool) -> Any:
    """Of a server of two layers with states."""
    import torch

    if kimi:
        shape, kind = home.KimiLinearStateShape.create(tp_world_size=1, num_heads=2, head_dim=16), home.KimiLinearCacheParams
    else:
        shape, kind = (
            home.Mamba2StateShape.create(
                tp_world_size=1, intermediate_size=32, n_groups=1, num_heads=2, head_dim=16, state_size=16, conv_kernel=4
            ),
            home.Mamba2CacheParams,
        )
    dtype = home.Mamba2StateDType(conv=torch.bfloat16, temporal=torch.float32)
    former = module("mem_cache.memory_pool").HybridReqToTokenPool
    return former(**accepted(former, {
        "size": _STATES, "mamba_size": _STATES, "max_context_len": 64, "device": "cpu", "enable_memory_saver": False,
        "cache_params": kind(shape=shape, dtype=dtype, layers=[0, 1]), "speculative_num_draft_tokens": None,
    }))  # fmt: skip
