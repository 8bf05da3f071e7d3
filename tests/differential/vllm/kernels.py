"""Stand-ins for the kernels that vLLM's backends launch, at their entry points: FlashAttention, its scheduler, cache writes.

They compute in float64 over what the launch names, and no number depends on how a kernel splits its work. What a kernel does
not write stays as the caller's memory was, and memory that torch leaves undefined is poison (`poisoned`). FlashAttention 3's
scheduler makes its metadata for one geometry; a launch of another one has no defined result: here it is NaN.
Source: `mha_fwd`, `mha_fwd_get_scheduler_metadata` of vLLM's fork of FlashAttention; `reshape_and_cache_flash` and
`static_scaled_fp8_quant` of vLLM's csrc.
"""

from __future__ import annotations

import math
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from attnfix.patches.lab import emulators
from attnfix.patches.lab.emulators import flashmla, stale
from attnfix.patches.lab.emulators.flash_attention import _size
from attnfix.patches.lab.vllm.kernels import found

_ASK_FOR_CUDA = (
    "vllm.v1.attention.ops.merge_attn_states",
    "vllm.attention.ops.merge_attn_states",
    "vllm.v1.attention.backends.mla.prefill.flash_attn",
    "vllm.model_executor.layers.attention.mla_attention",
    "vllm.v1.attention.backends.mla.common",
)
_TILE = 64  # keys; kernels have this many or more
FP8 = torch.float8_e4m3fn


def attend(q: Any, k: Any, v: Any, at: int, scale: float, causal: bool, window: Any, soft_cap: float, sinks: Any) -> Any:
    """One request. q: [rows, heads, d], whose first row is at position `at` among the keys. Out and natural LSE, float64."""
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // max(k.shape[1], 1)
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->qhk", q, k) * scale
    if soft_cap:
        scores = (scores / soft_cap).tanh() * soft_cap
    row, key = at + torch.arange(len(q))[:, None], torch.arange(len(k))
    left, right = window or (-1, -1)
    seen = torch.ones(len(q), len(k), dtype=torch.bool)
    if causal or right >= 0:
        seen &= key <= row + (0 if causal else right)
    if left >= 0:
        seen &= key >= row - left
    scores = scores.masked_fill(~seen[:, None], -math.inf)
    lse = scores.logsumexp(-1) if len(k) else scores.new_full(scores.shape[:2], -math.inf)
    if sinks is not None:
        lse = torch.logaddexp(lse, sinks.double()[None])
    weights = (scores - lse[..., None]).exp().nan_to_num(0.0)
    return torch.einsum("qhk,khd->qhd", weights, v), lse


def metadata_size(
    requests: int, max_seqlen_q: int, max_seqlen_k: int, num_splits: int, causal: Any, window: Any, head_size: int, paged: bool
) -> int:
    """Rounded up from 0.17 on, and longer where a launch is masked; so in a replay, whose launches are of later releases.

    The backend is there wherever `stand_in` was called, and is not imported here: that takes what all of the engine's models
    import, and a machine may lack some of it.
    """
    backend = sys.modules.get("vllm.v1.attention.backends.flash_attn")
    if backend is not None and not hasattr(backend, "round_up"):
        return 1 + requests
    size: int = _size(requests, max_seqlen_k, num_splits)
    masked = _masked(max_seqlen_q, max_seqlen_k, causal, window, head_size, paged)
    return size + (requests + -requests % 4 if masked else 0)


def _masked(max_seqlen_q: int, max_seqlen_k: int, causal: Any, window: Any, head_size: int, paged: bool) -> bool:
    """Whether the launcher takes a launch for causal or local: a window as long as all is none, and one query sees all keys."""
    left, right = tuple(window) if window is not None else (-1, -1)
    left, right = -1 if left >= max_seqlen_k - 1 else left, -1 if right >= max_seqlen_q - 1 else right
    if max_seqlen_q == 1 and left == right == -1 and not (64 < head_size <= 128 and paged):
        return False
    return bool(causal) or left >= 0 or right >= 0


def get_scheduler_metadata(
    *, batch_size: int, max_seqlen_q: int, max_seqlen_k: int, cache_seqlens: Any, headdim: int, causal: Any,
    window_size: Any = None, page_size: Any = None, num_splits: int = 0, **launch: Any,
) -> Any:  # fmt: skip
    """int32; its first number says for which geometry it is."""
    about = causal, window_size, headdim, page_size is not None
    made = torch.zeros(metadata_size(batch_size, max_seqlen_q, max_seqlen_k, num_splits, *about), dtype=torch.int32)
    made[0] = _geometry(causal, window_size)
    return made


def _geometry(causal: Any, window: Any) -> int:
    window = tuple(window) if window is not None else (-1, -1)
    left, right = window[0], 0 if causal is True else window[1]  # the kernel makes a causal launch's right edge 0
    return 1 + 4 * (left + 1) + 2 * (right == 0) + (left < 0 and right < 0)


def _dealt(
    q: Any, k: Any, v: Any, total: int | None, ranks: int, rank: int, scale: float, softcap: float, sinks: Any
) -> tuple[Any, Any]:
    """Token t lies on rank t % ranks: key j of this one is token j * ranks + rank of `total`, whose last are the queries. None:
    the queries see all."""
    parts = []
    for at in range(len(q)):
        seen = len(k) if total is None else max(0, (total - len(q) + at - rank) // ranks + 1)
        parts.append(attend(q[at : at + 1], k[:seen], v[:seen], seen - 1, scale, False, (-1, -1), softcap, sinks))
    outs, sums = zip(*parts) if parts else ((q[..., : v.shape[-1]],), (q[..., 0],))
    return torch.cat(outs), torch.cat(sums)


def flash_attn_varlen_func(
    *, q: Any, k: Any, v: Any, cu_seqlens_q: Any, max_seqlen_q: int, max_seqlen_k: int, softmax_scale: float,
    causal: Any = False, cu_seqlens_k: Any = None, seqused_k: Any = None, block_table: Any = None, window_size: Any = None,
    softcap: float = 0.0, scheduler_metadata: Any = None, num_splits: int = 0, out: Any = None, s_aux: Any = None,
    return_softmax_lse: bool = False, q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
    fa_version: int = 2, alibi_slopes: Any = None, mask_mod: Any = None, q_v: Any = None, **launch: Any,
) -> Any:  # fmt: skip
    """q: [tokens, heads, d]; k, v: [keys, KV heads, d], or with `block_table` [pages, page size, KV heads, d]. Descales are
    [requests, KV heads]. LSE [heads, tokens]. Rows past the last request, and of a request beyond `max_seqlen_q`, are not
    written; of a request without keys: 0 and -inf (FlashAttention 2: +inf). FP8 inputs give bfloat16 alone."""
    if alibi_slopes is not None or mask_mod is not None or isinstance(causal, torch.Tensor):
        raise NotImplementedError("this stand-in has no ALiBi, no mask function and no causality of single requests")
    ranks, rank, total = launch.get("cp_world_size", 1), launch.get("cp_rank", 0), launch.get("cp_tot_seqused_k")
    if ranks > 1 and (total is None or window_size is not None):
        raise NotImplementedError("this stand-in deals keys to ranks where it is told how many there are, and no window")
    if not launch.get("mixed"):
        _dtypes(q, k, v, out, s_aux)
    head_size = q.shape[-1]
    if q_v is not None:  # a latent is key and value at once
        q, k = torch.cat([q, q_v], -1), torch.cat([k, v], -1)
    window = tuple(window_size) if window_size is not None else (-1, -1)
    starts = cu_seqlens_q.tolist()
    requests = len(starts) - 1
    dtype = torch.bfloat16 if q.dtype == FP8 else q.dtype
    result = stale((*q.shape[:2], v.shape[-1]), dtype, 10, 11) if out is None else out
    lse = stale(q.shape[:2], torch.float32, 2, 12)
    spoiled = False
    if scheduler_metadata is not None and fa_version == 3:
        about = causal, window, head_size, block_table is not None
        if len(scheduler_metadata) != metadata_size(requests, max_seqlen_q, max_seqlen_k, num_splits, *about):
            raise RuntimeError("scheduler_metadata must have shape (metadata_size)")
        spoiled = int(scheduler_metadata[0]) != _geometry(causal, window)
    for b in range(requests):
        rows = slice(starts[b], min(starts[b + 1], starts[b] + max_seqlen_q))
        if block_table is None:
            keys = slice(int(cu_seqlens_k[b]), int(cu_seqlens_k[b + 1]))
            one_k, one_v = k[keys], v[keys]
            if seqused_k is not None:
                one_k, one_v = one_k[: int(seqused_k[b])], one_v[: int(seqused_k[b])]
        else:
            at = torch.arange(min(int(seqused_k[b]), max_seqlen_k))
            page = block_table[b, at // k.shape[1]].long()
            one_k, one_v = k[page, at % k.shape[1]], v[page, at % k.shape[1]]
            before = unread(len(at) - (starts[b + 1] - starts[b]), window)
            one_k[:before] = one_v[:before] = 0
        one_q, scaled = q[rows].double(), []
        for x, by in (one_k, k_descale), (one_v, v_descale):
            scaled.append(x.double() * (by[b].double()[None, :, None] if by is not None and x.dtype == FP8 else 1.0))
        if q_descale is not None and q.dtype == FP8:
            group = q.shape[1] // k.shape[-2]
            one_q = one_q * q_descale[b].double().repeat_interleave(group)[None, :, None]
        first = len(one_k) - (starts[b + 1] - starts[b])
        if ranks > 1:
            last = int(total[b]) if max_seqlen_q > 1 else None  # one query a request: the launcher drops the causal mask
            part, sums = _dealt(one_q, *scaled, last, ranks, rank, softmax_scale, softcap, s_aux)
        else:
            part, sums = attend(one_q, *scaled, first, softmax_scale, bool(causal), window, softcap, s_aux)
        result[rows] = (part * (math.nan if spoiled else 1.0)).to(result.dtype)
        lse[rows] = sums.float().masked_fill(sums == -math.inf, math.inf if fa_version == 2 else -math.inf)
    return (result, lse.t().contiguous()) if return_softmax_lse else result


def _dtypes(q: Any, k: Any, v: Any, out: Any, sinks: Any) -> None:
    """What the launchers of FlashAttention 2 and 3 refuse."""
    if k.dtype != q.dtype or v.dtype != q.dtype:
        raise RuntimeError("query and key must have the same dtype")
    if out is not None and out.dtype != (torch.bfloat16 if q.dtype == FP8 else q.dtype):
        raise RuntimeError("output must have the same dtype as inputs; for FP8 input, output must have dtype BF16")
    if sinks is not None and sinks.dtype != torch.bfloat16:
        raise RuntimeError("We only support bf16 dtype for S aux.")


def unread(first: int, window: Any) -> int:
    """Keys that no row reads, of a request whose first row is at position `first`: those of whole tiles before the window. A
    key within a tile is read, though its weight is 0: what is no number there makes the row none."""
    return max(first - window[0], 0) // _TILE * _TILE if window[0] >= 0 else 0


def unified_attention(*, sinks: Any = None, output_scale: Any = None, **launch: Any) -> None:
    """AITER's, of ROCm, as vLLM 0.15-0.19 call it: what FlashAttention's does with a cache. Beside a query of FP8 it does not
    scale keys and values: its caller does."""
    if launch["q"].dtype == FP8:
        launch |= {"k_descale": None, "v_descale": None}
    if output_scale is not None:
        raise NotImplementedError("this stand-in quantises no output")
    flash_attn_varlen_func(s_aux=sinks, mixed=True, **launch)


def reshape_and_cache_flash(key: Any, value: Any, key_cache: Any, value_cache: Any, slots: Any, dtype: str, k_scale: Any,
                            v_scale: Any) -> None:  # fmt: skip
    """Caches [pages, page size, KV heads, d], any strides; FP8 is divided by a scale, one or one per head. A slot below 0 is
    nobody's."""
    kept = slots >= 0
    mine = slots[kept]
    for x, cache, scale in (key, key_cache, k_scale), (value, value_cache, v_scale):
        rows = x[: len(slots)][kept]
        if "fp8" in dtype:
            rows = quantised(rows, scale).view(torch.uint8)
            cache = cache.view(torch.uint8)
        cache[mine // cache.shape[1], mine % cache.shape[1]] = rows


def quantised(x: Any, scale: Any) -> Any:
    """FP8, of [rows, heads, d]; scale: one, or one per head."""
    by = torch.as_tensor(scale).detach().double().reshape(-1, 1)
    return (x.double() / by).clamp(-448, 448).float().to(FP8)


def static_scaled_fp8_quant(out: Any, x: Any, scale: Any, *shape: Any) -> None:
    out.copy_((x.double() / scale.detach().double()).clamp(-448, 448).float().to(out.dtype))


def concat_and_cache_mla(kv_c: Any, k_pe: Any, cache: Any, slots: Any, kv_cache_dtype: str, scale: Any, **more: Any) -> None:
    """Cache [pages, page size, d]. A slot below 0 is nobody's."""
    if kv_cache_dtype not in ("auto", "bfloat16", "float16"):
        raise NotImplementedError("this stand-in writes no quantised latents")
    kept = slots >= 0
    mine = slots[kept]
    cache[mine // cache.shape[1], mine % cache.shape[1]] = torch.cat([kv_c, k_pe], -1)[: len(slots)][kept]


def gather_cache(src_cache: Any, dst: Any, block_table: Any, cu_seq_lens: Any, *more: Any, seq_starts: Any = None,
                 **launch: Any) -> None:  # fmt: skip
    """vLLM's `cp_gather_cache` and `gather_and_maybe_dequant_cache` of a cache that is not quantised."""
    starts = seq_starts if seq_starts is not None else next(x for x in reversed(more) if isinstance(x, torch.Tensor))
    emulators.gather_cache(src_cache, dst, block_table, cu_seq_lens, seq_starts=starts)


class _Schedule:
    """What FlashMLA's scheduler says for an unquantised cache from 0.20 on: the launch makes its own."""

    tile_scheduler_metadata = num_splits = None


def get_mla_metadata(cache_seqlens: Any, *shape: Any, **more: Any) -> tuple[Any, Any]:
    if cache_seqlens is None:
        return _Schedule(), None
    return flashmla.schedule(cache_seqlens, *shape)


def flash_mla_with_kvcache(*, q: Any, k_cache: Any, tile_scheduler_metadata: Any, num_splits: Any = None, **launch: Any) -> Any:
    if not isinstance(tile_scheduler_metadata, torch.Tensor):
        length = q.shape[1] * q.shape[2]
        tile_scheduler_metadata, num_splits = flashmla.schedule(launch["cache_seqlens"], length, 1)
    out, lse = flashmla.flash_mla_with_kvcache(
        q=q, k_cache=k_cache, tile_scheduler_metadata=tile_scheduler_metadata, num_splits=num_splits, **launch
    )
    return out.to(q.dtype), lse


def stand_in() -> None:
    """Bind the stand-ins wherever the engine has bound their names."""
    for name, kernel in {
        "flash_attn_varlen_func": flash_attn_varlen_func,
        "get_scheduler_metadata": get_scheduler_metadata,
        "reshape_and_cache_flash": reshape_and_cache_flash,
        "concat_and_cache_mla": concat_and_cache_mla,
        "gather_and_maybe_dequant_cache": gather_cache,
        "cp_gather_cache": gather_cache,
        "get_mla_metadata": get_mla_metadata,
        "flash_mla_with_kvcache": flash_mla_with_kvcache,
    }.items():
        for module in _modules():
            if name in vars(module):
                setattr(module, name, kernel)
    ops: Any = torch.ops
    ops._C_cache_ops = _Ops(reshape_and_cache_flash=reshape_and_cache_flash, concat_and_cache_mla=concat_and_cache_mla)
    ops._C = _Ops(static_scaled_fp8_quant=static_scaled_fp8_quant, merge_attn_states=emulators.MergeAttnStates(),
                  weak_ref_tensor=lambda tensor: tensor)  # fmt: skip
    for name in ("aiter", "aiter.ops", "aiter.ops.triton", "aiter.ops.triton.unified_attention"):
        sys.modules.setdefault(name, ModuleType(name))
    sys.modules["aiter.ops.triton.unified_attention"].unified_attention = unified_attention  # type: ignore[attr-defined]
    for module in filter(None, map(found, _ASK_FOR_CUDA)):
        module.current_platform = _Cuda(module.current_platform)


class _Cuda:
    """The platform, for modules that choose among kernels, and among names of their arguments: it is CUDA's."""

    def __init__(self, platform: Any):
        self._platform = platform

    def __getattr__(self, name: str) -> Any:
        return getattr(self._platform, name)

    def is_cuda(self) -> bool:
        return True


class _Ops:
    def __init__(self, **ops: Any):
        vars(self).update(ops)


def _modules() -> list[Any]:
    import_module("vllm.v1.attention.backends.flash_attn")
    return [module for name, module in list(sys.modules.items()) if name.startswith("vllm.") and module is not None]
