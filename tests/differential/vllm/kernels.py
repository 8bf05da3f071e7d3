"""Stand-ins for the kernels that vLLM's backends launch, at their entry points: FlashAttention, its scheduler, cache writes.

They compute in float64 over what the launch names, and no number depends on how a kernel splits its work. What a kernel does
not write stays as the caller's memory was, and memory that torch leaves undefined is poison (`poisoned`). FlashAttention 3's
scheduler makes its metadata for one geometry; a launch of another one has no defined result: here it is NaN.
Source: `mha_fwd`, `mha_fwd_get_scheduler_metadata` of vLLM's fork of FlashAttention; `reshape_and_cache_flash` and
`static_scaled_fp8_quant` of vLLM's csrc.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import torch

from attnfix.patches.proofkit.emulators import stale
from attnfix.patches.proofkit.emulators.flash_attention import _size as metadata_size

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


def get_scheduler_metadata(
    *, batch_size: int, max_seqlen_q: int, max_seqlen_k: int, cache_seqlens: Any, causal: Any, window_size: Any = None,
    num_splits: int = 0, **launch: Any,
) -> Any:  # fmt: skip
    """int32; its first number says for which geometry it is."""
    made = torch.zeros(metadata_size(batch_size, max_seqlen_k, num_splits), dtype=torch.int32)
    made[0] = _geometry(causal, window_size)
    return made


def _geometry(causal: Any, window: Any) -> int:
    window = tuple(window) if window is not None else (-1, -1)
    left, right = window[0], 0 if causal is True else window[1]  # the kernel makes a causal launch's right edge 0
    return 1 + 4 * (left + 1) + 2 * (right == 0) + (left < 0 and right < 0)


def flash_attn_varlen_func(
    *, q: Any, k: Any, v: Any, cu_seqlens_q: Any, max_seqlen_q: int, max_seqlen_k: int, softmax_scale: float,
    causal: Any = False, cu_seqlens_k: Any = None, seqused_k: Any = None, block_table: Any = None, window_size: Any = None,
    softcap: float = 0.0, scheduler_metadata: Any = None, num_splits: int = 0, out: Any = None, s_aux: Any = None,
    return_softmax_lse: bool = False, q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
    fa_version: int = 2, alibi_slopes: Any = None, mask_mod: Any = None, **launch: Any,
) -> Any:  # fmt: skip
    """q: [tokens, heads, d]; k, v: [keys, KV heads, d], or with `block_table` [pages, page size, KV heads, d]. Descales are
    [requests, KV heads]. LSE [heads, tokens]. Rows past the last request, and of a request beyond `max_seqlen_q`, are not
    written; of a request without keys: 0 and -inf (FlashAttention 2: +inf)."""
    if alibi_slopes is not None or mask_mod is not None or isinstance(causal, torch.Tensor):
        raise NotImplementedError("this stand-in has no ALiBi, no mask function and no causality of single requests")
    window = tuple(window_size) if window_size is not None else (-1, -1)
    starts = cu_seqlens_q.tolist()
    requests = len(starts) - 1
    dtype = torch.bfloat16 if q.dtype == FP8 else q.dtype
    result = stale((*q.shape[:2], v.shape[-1]), dtype, 10, 11) if out is None else out
    lse = stale(q.shape[:2], torch.float32, 2, 12)
    spoiled = False
    if scheduler_metadata is not None and fa_version == 3:
        if len(scheduler_metadata) != metadata_size(requests, max_seqlen_k, num_splits):
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
        one_q, scaled = q[rows].double(), []
        for x, by in (one_k, k_descale), (one_v, v_descale):
            scaled.append(x.double() * (by[b].double()[None, :, None] if by is not None and x.dtype == FP8 else 1.0))
        if q_descale is not None and q.dtype == FP8:
            group = q.shape[1] // k.shape[-2]
            one_q = one_q * q_descale[b].double().repeat_interleave(group)[None, :, None]
        first = len(one_k) - (starts[b + 1] - starts[b])
        part, sums = attend(one_q, *scaled, first, softmax_scale, bool(causal), window, softcap, s_aux)
        result[rows] = (part * (math.nan if spoiled else 1.0)).to(result.dtype)
        lse[rows] = sums.float().masked_fill(sums == -math.inf, math.inf if fa_version == 2 else -math.inf)
    return (result, lse.t().contiguous()) if return_softmax_lse else result


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


def stand_in() -> None:
    """Bind the stand-ins wherever the engine has bound their names."""
    for name, kernel in {
        "flash_attn_varlen_func": flash_attn_varlen_func,
        "get_scheduler_metadata": get_scheduler_metadata,
        "reshape_and_cache_flash": reshape_and_cache_flash,
    }.items():
        for module in _modules():
            if name in vars(module):
                setattr(module, name, kernel)
    torch.ops._C_cache_ops = _Ops(reshape_and_cache_flash=reshape_and_cache_flash)  # type: ignore[assignment]
    torch.ops._C = _Ops(static_scaled_fp8_quant=static_scaled_fp8_quant)  # type: ignore[assignment]


class _Ops:
    def __init__(self, **ops: Any):
        vars(self).update(ops)


def _modules() -> list[Any]:
    import sys

    import_module("vllm.v1.attention.backends.flash_attn")
    return [module for name, module in list(sys.modules.items()) if name.startswith("vllm.") and module is not None]
