"""Proof of sglang.unified-kv-last-page: rows of all slots that the allocator hands out, in buffers of DeepSeek-V4.

Real: the pool with its constructor, and the allocator. Played: the platform. Spared: separate buffers, which have that page.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation, combine, replaced
from attnfix.patches.lab.sglang import (
    absent,  # noqa: F401  its stand-ins for imports are wanted here
    construction,
)
from attnfix.patches.lab.sglang.engine import accepted, module, on_cpu

from .wrap import blocks

_POOLS = "sglang.srt.mem_cache.deepseek_v4_memory_pool"
_GATE = "sglang.srt.layers.attention.dsv4.unified_kv_kernels.env_gate"
_RATIOS = [0, 4, 128, 4]


class Case(NamedTuple):
    pages: int
    page_size: int = 256
    requests: int = 3
    unified: bool = True


class Proof(Cases):
    modules = (_POOLS, _GATE)
    may_lack = modules
    needs = f"{_POOLS}:DeepSeekV4UnifiedKVPool"
    absent = "no pool with all KV of a layer in one buffer"
    kernel = "none"
    measure = "share of slots whose compressed KV lies behind a layer's buffer"
    bug = (Case(5), Case(1, requests=1), Case(3, page_size=128))
    spared = (Case(5, unified=False), Case(2, requests=1, unified=False))
    broken = {
        "the correction does nothing": (blocks, lambda real, page_size: 0),
        "a block is missed": (blocks, lambda real, page_size: real(page_size) - 1),
    }

    def prepare(self) -> None:
        super().prepare()
        if accepted(self.engine[_POOLS].DeepSeekV4UnifiedKVPool, {"page_size": 256}):
            raise NoSuchPath("the pool is told of pages, and has the rows of one more")

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        construction.serve("--attention-backend", "triton", draft=False)
        kind = self.engine[_POOLS].DeepSeekV4TokenToKVPool
        size = case.pages * case.page_size
        given = {
            "max_num_reqs": case.requests, "swa_size": size, "c4_size": size // 4, "c128_size": size // 128,
            "c4_state_pool_size": 8, "c128_state_pool_size": 8, "page_size": case.page_size, "swa_page_size": 128,
            "dtype": torch.uint8, "c4_state_dtype": torch.float32, "c128_state_dtype": torch.float32, "qk_nope_head_dim": 448,
            "qk_rope_head_dim": 64, "indexer_head_dim": 128, "layer_num": len(_RATIOS), "device": "cpu",
            "enable_memory_saver": False, "compression_ratios": _RATIOS,
        }  # fmt: skip
        gate = self.engine[_GATE]
        gate.is_unified_kv_triton.cache_clear()
        asked = gate.envs.SGLANG_HACK_FLASHMLA_BACKEND.override("unified_kv_triton")
        with replaced(gate, "is_hip", lambda: case.unified), asked, on_cpu():
            pool = kind(**given)
        paged: Any = module("mem_cache.allocator").PagedTokenToKVPoolAllocator
        ordered = accepted(paged, {"need_sort": False})
        allocator = paged(size, page_size=case.page_size, dtype=torch.uint8, device="cpu", kvcache=None, **ordered)
        slots = allocator.alloc(size)
        return combine(*(self._seen(pool, case, layer, slots) for layer, ratio in enumerate(_RATIOS) if ratio))

    def _seen(self, pool: Any, case: Case, layer: int, slots: Any) -> Observation:
        """The share of slots behind the buffer, in a layer."""
        if case.unified:
            rows, first = len(pool.get_unified_kv(layer)), pool.unified_swa_pages
        else:
            rows, first = self._rows(pool, case, layer), 0
        places = first + slots // _RATIOS[layer]
        return Observation(float((places >= rows).double().mean()), str((rows, places.tolist())))

    def _rows(self, pool: Any, case: Case, layer: int) -> int:
        """Rows of a layer's own buffer, which is kept by pages."""
        ratio = _RATIOS[layer]
        own = pool.c4_kv_pool if ratio == 4 else pool.c128_kv_pool
        return len(own.kv_buffer[0]) * max(case.page_size // ratio, 1)
