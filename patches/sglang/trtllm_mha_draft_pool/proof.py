"""Proof of sglang.trtllm-mha-draft-pool: a draft model on TRT-LLM MHA beside a target with a KV pool for window layers.

Its layer 1 bears the number of one of the target's window layers; beyond the window the target's pages are freed. Spared: layer
0 of a model without windows, and targets whose layers share one pool.
"""

from __future__ import annotations

from typing import Any

from attnfix.patches.lab.proof import replaced
from attnfix.patches.lab.sglang import paged
from attnfix.patches.lab.sglang.engine import accepted, module
from attnfix.patches.lab.sglang.paged import CONTEXT, FULL, SLIDING, TrtllmMha, case, decode, decodes, launched, prefill

from .wrap import window_pool

_BACKEND = "sglang.srt.layers.attention.trtllm_mha_backend"
_REPLAYS = f"{_BACKEND}:TRTLLMHAAttnBackend.init_forward_metadata_replay_cuda_graph"  # up to 0.5.12.post1
LONG, ONE, MIXED = (25, 3, 40), (30,), ((0, 19, 33), (11, 4, 9))


class Server(paged.Server):
    """One of a draft worker: the target's allocator, and a pool of its own. With a window, layer 0 has slots of windows."""

    def _model(self) -> None:
        super()._model()
        runner, target = self.runner, self.runner.token_to_kv_pool
        kind = type(target) if self.windows else module("mem_cache.memory_pool").MHATokenToKVPool
        runner.is_draft_worker, size = True, target.size
        named = {
            "size": size, "size_swa": size, "page_size": self.size, "layer_num": 2, "swa_attention_layer_ids": [FULL],
            "full_attention_layer_ids": [SLIDING], "enable_kvcache_transpose": False, "enable_memory_saver": False,
            "dtype": runner.kv_cache_dtype, "device": runner.device,
        }  # fmt: skip
        self.kv = runner.token_to_kv_pool = kind(**accepted(kind, named) | {"head_num": 1, "head_dim": paged.DIM})
        if self.windows:
            self.kv.full_to_swa_index_mapping = target.full_to_swa_index_mapping

    @property
    def windows(self) -> bool:
        return self.launch.pool and self.launch.window is not None

    def _own(self, layer_id: int, slots: Any) -> Any:
        return self._targets(slots) if self.windows and layer_id == FULL else slots

    def _targets(self, slots: Any) -> Any:
        return self.runner.token_to_kv_pool_allocator.translate_loc_from_full_to_swa(slots).long()

    def _take(self, row: int, tokens: range) -> None:
        with replaced(self, "_own", lambda layer_id, slots: self._targets(slots)):
            super()._take(row, tokens)

    def _free(self, row: int, before: int) -> None:
        slots = self.slots(row, range(before // self.size * self.size))
        self.runner.token_to_kv_pool_allocator.free_swa(slots[self._targets(slots) > 0])


class Proof(TrtllmMha):
    modules = (*TrtllmMha.modules, "sglang.srt.mem_cache.memory_pool")
    needs = f"{_BACKEND}:TRTLLMHAAttnBackend._get_layer_page_table"
    absent = "the backend has no page table of window layers"
    bug = (
        case(prefill(*MIXED), *decodes(LONG), page_size=16, pool=True, window=None),
        case(decode(LONG, graph=True), decode(ONE, graph=True), page_size=16, pool=True, window=None, where=_REPLAYS),
        case(prefill(*MIXED), decode(LONG), page_size=16, pool=True, window=None, kv_dtype="fp8_e4m3", where=_REPLAYS),
        case(prefill(*MIXED), decode(LONG), page_size=16, pool=True, window=CONTEXT),
        case(prefill(*MIXED), decode(ONE, graph=True), page_size=16, pool=True, window=CONTEXT, where=_REPLAYS),
    )
    spared = (
        case(prefill(*MIXED, layers=(FULL,)), decode(LONG, layers=(FULL,)), page_size=16, pool=True, window=None),
        case(prefill(*MIXED), decode(LONG), page_size=16, window=None),
        case(decode(ONE, graph=True), page_size=16, window=None, where=_REPLAYS),
    )
    around = {"`--disable-hybrid-swa-memory`": launched(bug, pool=False)}
    broken = {
        "the correction does nothing": (window_pool, lambda real, backend, pool: backend._swa_kv_pool),
        "the draft model's own windows are missed": (window_pool, lambda real, backend, pool: None),
    }

    def server(self, launch: paged.Launch, seed: int, of: type[paged.Server] = Server) -> paged.Server:
        return super().server(launch, seed, of)
