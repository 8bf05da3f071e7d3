"""Stand-ins for GPU kernels, at the entry points where sglang calls them, and what lies in memory that nobody wrote."""

from __future__ import annotations

import importlib
import sys
import types
from contextlib import suppress
from typing import Any

from attnfix.patches.lab import emulators
from attnfix.patches.lab.emulators import flashinfer
from attnfix.patches.lab.sglang.engine import module

from . import device, flash_attention, mla_kernels, trees, trtllm

_ATTENTION = "layers.attention."


def install() -> None:
    """Put the stand-ins in place: once, before any server is constructed."""
    _flash_attention()
    _flashinfer()
    mla_kernels.install()
    trtllm.install()
    _trees()


def _flash_attention() -> None:
    """At sgl_kernel, and where a backend's module has taken the names from."""
    import sgl_kernel

    compiled = types.ModuleType("sgl_kernel.flash_attn")
    names = ("flash_attn_with_kvcache", "flash_attn_varlen_func", "get_scheduler_metadata")
    made = {name: device.launched(getattr(flash_attention, name)) for name in names}
    vars(compiled).update(made)
    sys.modules[compiled.__name__] = sgl_kernel.flash_attn = compiled
    backend = module(_ATTENTION + "flashattention_backend")
    for name in names:
        for home in (name, f"{name}_fa3"):
            if hasattr(backend, home):
                setattr(backend, home, made[name])
    backend.merge_state_v2 = merge = device.launched(merge_state_v2)
    forward = "models.deepseek_common.attention_forward_methods.forward_mha"
    for home in _imported("sglang.srt.models.deepseek_v2", f"sglang.srt.{forward}"):
        vars(home).setdefault("merge_state_v2", merge)  # up to 0.5.19 the chunks of a prefix are merged there


def merge_state_v2(v_a: Any, s_a: Any, v_b: Any, s_b: Any, v_merged: Any = None, s_merged: Any = None) -> tuple[Any, Any]:
    import torch

    if v_merged is None:
        v_merged, s_merged = torch.empty_like(v_a), torch.empty_like(s_a)
    return emulators.merge_state_v2(v_a, s_a, v_b, s_b, v_merged, s_merged)


class PagedDecode(flashinfer.PagedDecode):
    """Which multiplies keys by `k_scale` and the output by `v_scale`, as prefill does."""

    def forward(self, q: Any, kv: Any, *, sm_scale: float, k_scale: Any = None, v_scale: Any = None, **given: Any) -> Any:
        out = super().forward(q, kv, sm_scale=sm_scale * (k_scale or 1.0), **given)
        return out * (v_scale or 1.0)


def _flashinfer() -> None:
    backend = module(_ATTENTION + "flashinfer_backend")
    for name in ("merge_state", "_safe_merge_state"):
        setattr(backend, name, device.launched(flashinfer.merge_state))
    for kind in (flashinfer.RaggedPrefill, flashinfer.PagedPrefill, PagedDecode):
        for name in {"forward", "forward_return_lse"} & vars(kind).keys():
            setattr(kind, name, device.launched(getattr(kind, name)))
    backend.BatchPrefillWithRaggedKVCacheWrapper = flashinfer.RaggedPrefill
    backend.BatchPrefillWithPagedKVCacheWrapper = flashinfer.PagedPrefill
    backend.BatchDecodeWithPagedKVCacheWrapper = PagedDecode
    if not hasattr(backend, "fast_decode_plan"):  # up to 0.5.2 the engine's own
        backend.fast_decode_plan = flashinfer.fast_decode_plan


def poison(runner: Any) -> None:
    """Fill the pools as if others had used them: finite, and far from what any request wrote."""
    import torch

    draw = torch.Generator().manual_seed(1)
    for state in _states(runner.req_to_token_pool):
        state[:, 1:] = torch.randint(-60, 60, state[:, 1:].shape, generator=draw).to(state.dtype)
    for buffer in _buffers(runner.token_to_kv_pool):
        noise = torch.randint(-60, 60, buffer.shape, generator=draw, dtype=torch.int8)
        if buffer.dtype == torch.uint8:  # FP8, as the pool keeps it
            noise = noise.float().to(runner.kv_cache_dtype).view(torch.uint8)
        buffer.copy_(noise)


def _buffers(pool: Any) -> list[Any]:
    inner = [getattr(pool, name) for name in ("full_kv_pool", "swa_kv_pool") if hasattr(pool, name)]
    if inner:
        return [buffer for one in inner for buffer in _buffers(one)]
    return [buffer for name in ("k_buffer", "v_buffer", "kv_buffer") for buffer in getattr(pool, name, None) or []]


def _states(pool: Any) -> list[Any]:
    """Of recurrent layers, [layers, slots, …]. The first slot is for rows that pad a batch, and never another's."""
    cache = getattr(getattr(pool, "mamba_pool", None), "mamba_cache", None)
    return [] if cache is None else [*cache.conv, cache.temporal]


def _trees() -> None:
    """Speculative trees are built and verified by the engine's own Triton kernels, in the place of the same ones compiled.

    Where a draft's keys go is looked up by a Triton kernel, too, and on CUDA alone: elsewhere the engine looks up nothing.
    """
    for home in _imported("sglang.kernels.ops.speculative.cache_locs", "sglang.srt.speculative.triton_ops.cache_locs"):
        home._is_cuda = True
    for home in _imported("sglang.srt.speculative.eagle_utils", "sglang.kernels.ops.speculative.spec_tree"):
        if hasattr(home, "sgl_build_tree_kernel_triton") and hasattr(home, "_is_xpu"):
            home._is_xpu = True  # what these kernels are for, there
        elif "_is_xpu" not in vars(home):
            import sgl_kernel

            home._is_cuda, home.sgl_build_tree_kernel_efficient = True, device.launched(trees.build_tree_kernel_efficient)
            sgl_kernel.verify_tree_greedy = device.launched(trees.verify_tree_greedy)


def _imported(*names: str) -> list[Any]:
    """Those of these modules that the release has."""
    found = []
    for name in names:
        with suppress(ModuleNotFoundError):
            found.append(importlib.import_module(name))
    return found
