"""Proof of sglang.trtllm-mha-kv-scales: prefill, decode and verification of a checkpoint with scales of the KV cache.

Real: `TRTLLMHAAttnBackend`'s metadata and forward, and the KV pool that divides by the scales; from 0.5.8 on the backend's own
Triton kernel does that, in the interpreter. Emulated: both TRT-LLM attention kernels, and from 0.5.16 on the writing kernel.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.proof import Observation, code_of, combine, replaced
from attnfix.patches.lab.sglang import trtllm_mha
from attnfix.patches.lab.sglang.trtllm_mha import BACKEND, DRAFT, REQUESTS, Server

#: Where a kernel compiled on demand writes to the cache, from 0.5.16 on
_FUSED = ("sglang.jit_kernel.fused_fp8_qkv_kv_cache", "sglang.kernels.ops.kvcache.fused_fp8_qkv_kv_cache")
#: Calibrated scales of keys and values
_SCALES = 0.04, 0.25


class Proof(proof.Proof):
    modules, may_lack = (*trtllm_mha.MODULES, *_FUSED), (*trtllm_mha.MAY_LACK, *_FUSED)

    def prepare(self) -> None:
        import torch

        kind = self.engine[BACKEND].TRTLLMHAAttnBackend
        self.dtypes = [torch.bfloat16]
        if "float8_e4m3fn" in code_of(kind.forward_decode).co_names or hasattr(kind, "_get_bmm_scales"):
            self.dtypes.append(torch.float8_e4m3fn)  # up to 0.5.4.post1 there is no FP8 query, so no FP8 cache
        self.engine[BACKEND].flashinfer = SimpleNamespace(
            decode=SimpleNamespace(trtllm_batch_decode_with_kv_cache=emulators.PagedDecode()),
            prefill=SimpleNamespace(trtllm_batch_context_with_kv_cache=emulators.PagedContext()),
        )
        if hasattr(self.engine[BACKEND], "scaled_fp8_quant"):  # 0.5.14 and later
            self.engine[BACKEND].scaled_fp8_quant = as_it_is
        for name in _FUSED:
            if name in self.engine:
                self.engine[name].fused_fp8_qkv_kv_cache = _fused

    def scenario(self, seed: int) -> Observation:
        """Caches of FP8 and of BF16."""
        return combine(*(self._run(seed, dtype, _SCALES) for dtype in self.dtypes))

    def control(self, seed: int) -> Observation:
        """The same without scales, and with scales of 1."""
        kinds = ((dtype, scales) for dtype in self.dtypes for scales in (None, (1.0, 1.0)))
        return combine(*(self._run(seed, *kind) for kind in kinds))

    def _run(self, seed: int, dtype: Any, scales: tuple[float, float] | None) -> Observation:
        import torch

        server = Server(self.engine, torch.Generator().manual_seed(seed), dtype, scales)
        seen = [server.step("EXTEND", [9, 20, 3]), server.step("EXTEND", [5, 1, 9]), server.step("DECODE", [1] * REQUESTS)]
        return combine(*seen, server.step("TARGET_VERIFY", [DRAFT] * REQUESTS))

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        kind = wrap.cache_of
        found: dict[str, Any] = {
            "the correction does nothing": replaced(wrap, "cache_of", lambda dtype: None),
            "BF16 caches are missed": replaced(wrap, "cache_of", lambda dtype: kind(dtype) if dtype.itemsize == 1 else None),
        }
        if len(self.dtypes) > 1:
            missed = replaced(wrap, "cache_of", lambda dtype: kind(dtype) if dtype.itemsize > 1 else None)
            found["FP8 caches are missed"] = missed
        return found


def _fused(q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, cache_loc: Any, k_scale: Any, v_scale: Any) -> Any:
    """`fused_fp8_qkv_kv_cache`: writes K and V divided by their scales; the query is cast."""
    import torch

    for cache, x, scale in ((k_cache, k, k_scale), (v_cache, v, v_scale)):
        rows = x.float() / (1.0 if scale is None else float(scale))
        cache[cache_loc] = rows.view(-1, *cache.shape[1:]).to(torch.float8_e4m3fn)
    return None if q is None else q.to(torch.float8_e4m3fn)


def as_it_is(x: Any, scale: Any) -> tuple[Any, float]:
    """`scaled_fp8_quant` with a scale of 1, for queries of about 1: so one reference serves all releases."""
    import torch

    return x.to(torch.float8_e4m3fn), 1.0
