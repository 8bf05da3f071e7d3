"""FlashAttention 3 for proofs: its paged kernel at sglang's entry point, and `FlashAttentionBackend` around it."""

from __future__ import annotations

import math
from typing import Any

from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import device

BACKEND = "sglang.srt.layers.attention.flashattention_backend"
CONFIG = "sglang.srt.configs.model_config"
TRANSLATOR = "sglang.srt.mem_cache.kv_index_translator"  # from 0.5.19
_PAGED = ("flash_attn_with_kvcache", "flash_attn_with_kvcache_fa3")


def use(module: Any, kernel: Any) -> None:
    """Put `kernel` in the place of the paged kernel."""
    for name in _PAGED:
        if hasattr(module, name):
            setattr(module, name, kernel)


def paged(q, k_cache, v_cache, *, page_table, cache_seqlens, cu_seqlens_q, softmax_scale, causal, window_size=(-1, -1),
          softcap=0.0, return_softmax_lse=False, sinks=None, out=None, qv=None, k_descale=None, v_descale=None,
          **launch):  # fmt: skip
    """`flash_attn_with_kvcache`: q [tokens, heads, d], caches [pages, page size, KV heads, d], page_table int32 [batch, pages].

    `qv`, [tokens, heads, dv], is multiplied with the values, and the scores are the sum of both products. `k_descale` and
    `v_descale`, float32 [batch, KV heads], multiply what an FP8 cache holds; the result is bfloat16 then.

    Nobody asks whether a page lies inside the cache, or where a row of the table ends: what lies behind it in memory is read.
    A page behind all memory of the cache is an illegal memory access: NaN for the request. With `causal`, or a window that
    ends at the token itself, the last rows are aligned. The LSE is natural, float32 [heads, tokens], and holds the sink of its
    head (`sinks`, [heads]); a row without keys has -inf and 0 all the same (`finalize` and `store_zero` of the kernel).
    """
    import torch

    if out is not None:
        raise NotImplementedError("an output of the caller's")
    at, lens = cu_seqlens_q.tolist(), cache_seqlens.tolist()
    whole = q if qv is None else torch.cat([q, qv], -1)
    dtype = torch.bfloat16 if q.dtype.itemsize == 1 else q.dtype
    size, result = k_cache.shape[1], torch.zeros(*q.shape[:2], v_cache.shape[-1], dtype=dtype, device=q.device)
    lse = torch.full((q.shape[1], q.shape[0]), -math.inf, device=q.device)
    table = page_table.as_strided((page_table.untyped_storage().nbytes() // page_table.element_size(),), (1,), 0)
    for b in range(len(at) - 1):
        row = page_table.storage_offset() + b * page_table.stride(0)
        pages = table[row : row + -(-lens[b] // size)].long()
        if len(pages) * size < lens[b] or not ((pages >= 0) & (pages < len(_memory(k_cache)))).all():
            result[at[b] : at[b + 1]] = math.nan
            continue
        k, v = (_memory(cache)[pages].flatten(0, 1)[: lens[b]] for cache in (k_cache, v_cache))
        k, v = (
            x if descale is None else x.double() * descale[b, :, None].double()
            for x, descale in ((k, k_descale), (v, v_descale))
        )
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        if qv is not None:
            k = torch.cat([k, v], -1)
        for row in range(at[b], at[b + 1]):
            last = lens[b] - (at[b + 1] - 1 - row) if causal or window_size[1] == 0 else lens[b]
            first = max(0, last - 1 - window_size[0]) if window_size[0] >= 0 else 0
            one, one_lse = emulators.attention(
                whole[row : row + 1], k[first:last], v[first:last], softmax_scale, soft_cap=softcap, sinks=sinks
            )
            result[row], lse[:, row] = one[0].to(dtype), one_lse[0].float()
    return (result, lse) if return_softmax_lse else result


def _memory(cache):
    """The cache, and behind it what else its allocation holds."""
    span = sum((many - 1) * stride for many, stride in zip(cache.shape[1:], cache.stride()[1:]))  # to the last number of a page
    room = cache.untyped_storage().nbytes() // cache.element_size() - cache.storage_offset()
    pages = (room - span - 1) // cache.stride(0) + 1
    return cache.as_strided((pages, *cache.shape[1:]), cache.stride())


class Options:
    """Server arguments, fields of a model runner or of a config: what is not given is off."""

    def __init__(self, **given: Any):
        vars(self).update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return 0


def runner(modules: dict[str, Any], args: Options, model: Options, kv: Any, req_to_token: Any, **fields: Any) -> Options:
    """A model runner, as far as `FlashAttentionBackend`'s own construction asks: of a server with `args`, a model with `model`
    for its config (MHA, where that says nothing else), KV pool `kv`; `fields` are more of the runner's.

    What later releases ask of the process instead of the runner answers with `args`, too.
    """
    import torch

    module, size = modules[BACKEND], fields.get("page_size", 1)
    vars(args).update(kv_cache_dtype="auto", deterministic=Options())
    vars(model).setdefault("attention_arch", modules[CONFIG].AttentionArch.MHA)
    made = Options(
        sliding_window_size=None, model_config=model, device=device(), req_to_token_pool=Options(req_to_token=req_to_token),
        token_to_kv_pool=kv, page_size=size, kv_cache_dtype=torch.float16, kv_cache_dtype_str="auto", server_args=args,
        attention_chunk_size=None, ps=args, token_to_kv_pool_allocator=None,
    )  # fmt: skip
    vars(made).update(fields)
    if TRANSLATOR in modules:
        vars(made)["kv_index_translator"] = modules[TRANSLATOR].KVIndexTranslator(
            req_to_token=req_to_token, token_to_kv_pool_allocator=None, token_to_kv_pool=kv, page_size=size, device=device()
        )
    for name, asked in list(vars(module).items()):
        if name.startswith("get_") and asked.__module__ in ("sglang.srt.runtime_context", __name__):
            setattr(module, name, lambda: args)
    return made


def constructed(
    modules: dict[str, Any], req_to_token: Any, kv: Any, args: Options, model: dict[str, Any], **fields: Any
) -> Any:
    """`FlashAttentionBackend` by its own constructor, over a `runner` of these arguments; `model` are fields of its config.

    The caller has put a stand-in at `sgl_kernel.flash_attn`.
    """
    config = Options(**{"context_len": req_to_token.shape[1]} | model)
    return modules[BACKEND].FlashAttentionBackend(
        runner(modules, args, config, kv, req_to_token, **{"tp_size": 1, "attn_cp_size": 1} | fields)
    )
