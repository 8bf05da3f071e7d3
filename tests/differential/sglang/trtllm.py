"""Stand-ins for TRT-LLM's kernels, as FlashInfer has them: of latent attention, and of heads of their own on pages.

Those on pages are Blackwell's, which know windows and sinks; on Hopper and consumer GPUs FlashInfer has XQA in their place,
which is not here. Source: `decode.py` and `prefill.py` of FlashInfer 0.6.12: caches lie as [pages, KV heads, page size, d], a
window is how many keys to the left a row sees, rows of no request are undefined.
"""

from __future__ import annotations

import importlib
import types
from contextlib import suppress
from typing import Any

from attnfix.patches.lab import emulators
from attnfix.patches.lab.sglang.engine import module

from . import device, flash_attention

_ATTENTION = "layers.attention."


def install() -> None:
    library = types.ModuleType("flashinfer")
    for name, of in {
        "prefill": {
            "trtllm_ragged_attention_deepseek": emulators.TrtllmRaggedAttention(lse_base=2.0),
            "trtllm_batch_context_with_kv_cache": _context,
        },
        "decode": {"trtllm_batch_decode_with_kv_cache_mla": _latent, "trtllm_batch_decode_with_kv_cache": _decode},
    }.items():
        part = types.ModuleType(f"flashinfer.{name}")
        vars(part).update({kernel: device.launched(stand_in) for kernel, stand_in in of.items()})
        setattr(library, name, part)
    library.utils = types.ModuleType("flashinfer.utils")
    library.utils.get_device_sm_count = lambda *_: 132
    library.utils.get_trtllm_gen_multi_ctas_kv_counter_bytes = lambda *_, **__: 1024
    for backend in ("trtllm_mla_backend", "trtllm_mha_backend"):
        home = module(_ATTENTION + backend)
        home.flashinfer = library
        for name, stand_in in {
            "fixup_zero_kv_rows": device.launched(emulators.fixup_zero_kv_rows), "_jit_fixup_module": lambda *_: None,
            "can_use_set_mla_kv_concat_q": lambda *_: False, "can_use_set_mla_kv_concat_q_fp8": lambda *_: False,
            "scaled_fp8_quant": device.launched(_cast),
        }.items():  # fmt: skip
            if hasattr(home, name):
                setattr(home, name, stand_in)
    for place in ("kernels.ops.kvcache", "jit_kernel"):  # the latter in 0.5.16
        with suppress(ModuleNotFoundError):
            fused = importlib.import_module(f"sglang.{place}.fused_fp8_qkv_kv_cache")
            fused.fused_fp8_qkv_kv_cache = device.launched(_quantise_and_store)


def _cast(q: Any, scale: None) -> Any:
    """The query in FP8, [rows, d], which holds what is drawn, and its scale (0.5.14)."""
    import torch

    return q.to(torch.float8_e4m3fn), 1.0


def _quantise_and_store(
    q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, cache_loc: Any, k_scale: Any = None, v_scale: Any = None
) -> Any:  # fmt: skip
    """Keys and values, [rows, heads * d], divided by their scales go to the slots of the caches; returns the query in FP8."""
    import torch

    for rows, cache, scale in ((k, k_cache, k_scale), (v, v_cache, v_scale)):
        rows = rows.reshape(len(rows), -1).float() / (1.0 if scale is None else scale.to(torch.float32))
        bits = rows.to(torch.float8_e4m3fn).view(torch.uint8)
        cache.view(torch.uint8).view(-1, bits.shape[1])[cache_loc.long()] = bits
    return None if q is None else q.reshape(len(q), -1).to(torch.float8_e4m3fn)


def _latent(*, return_lse: bool = False, **launch: Any) -> Any:
    if return_lse:
        raise NotImplementedError("the LSE")
    return emulators.trtllm_batch_decode_with_kv_cache_mla(**launch)


def _decode(
    *, query: Any, kv_cache: Any, block_tables: Any, seq_lens: Any, bmm1_scale: Any, bmm2_scale: Any, window_left: Any,
    sinks: Any = None, q_len_per_req: int | None = 1, mask: Any = None, out: Any = None, out_dtype: Any = None,
    kv_cache_sf: Any = None, **launch: Any,
) -> Any:  # fmt: skip
    """query: [requests * q_len_per_req, heads, d], the last tokens of each request's."""
    if mask is not None or kv_cache_sf is not None or q_len_per_req is None or launch.get("cum_seq_lens_q") is not None:
        raise NotImplementedError("a mask, FP4, or rows of different numbers")
    begins = [q_len_per_req * b for b in range(len(query) // q_len_per_req + 1)]
    scales = bmm1_scale, bmm2_scale
    return _paged(query, kv_cache, block_tables, seq_lens, begins, scales, window_left, sinks, True, out, out_dtype)


def _context(
    *, query: Any, kv_cache: Any, block_tables: Any, seq_lens: Any, bmm1_scale: Any, bmm2_scale: Any, window_left: Any,
    cum_seq_lens_q: Any, sinks: Any = None, causal: bool = True, out: Any = None, out_dtype: Any = None,
    kv_cache_sf: Any = None, **launch: Any,
) -> Any:  # fmt: skip
    """query: [rows, heads, d], of each request by `cum_seq_lens_q`."""
    if kv_cache_sf is not None:
        raise NotImplementedError("FP4")
    begins, scales = cum_seq_lens_q.tolist(), (bmm1_scale, bmm2_scale)
    return _paged(query, kv_cache, block_tables, seq_lens, begins, scales, window_left, sinks, causal, out, out_dtype)


def _paged(
    query: Any, kv_cache: Any, tables: Any, seq_lens: Any, begins: list[int], scales: tuple[Any, Any], window_left: Any,
    sinks: Any, causal: bool, out: Any, out_dtype: Any,
) -> Any:  # fmt: skip
    lengths, page = seq_lens.tolist(), kv_cache[0].shape[2]
    if len(begins) - 1 > min(len(lengths), len(tables)):
        raise IndexError("illegal memory access: more requests than lengths or pages")

    memory = flash_attention._memory(tables)

    def keys(b: int) -> tuple[Any, Any]:  # by the row's stride: nobody asks whether a length fits into it
        first = tables.storage_offset() + b * tables.stride(0)
        pages = memory[first : first + -(-lengths[b] // page)].long()
        if len(pages) * page < lengths[b]:
            raise IndexError("illegal memory access: the table of pages ends before the request does")
        return tuple(cache[pages].transpose(1, 2).flatten(0, 1)[: lengths[b]] for cache in kv_cache)  # type: ignore[return-value]

    result = flash_attention._attend(
        query.double(), keys, begins, None, (), float(scales[0]), causal, (-1 if window_left is None else window_left, -1), 0.0,
        sinks, None, False, query.shape,
    )  # fmt: skip
    result = (result * float(scales[1])).to((out_dtype or query.dtype) if out is None else out.dtype)
    return result if out is None else out.copy_(result)
