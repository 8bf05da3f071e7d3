"""Corrections of vllm.kv-scale-float.

Who reads what of a layer, in the releases that are affected (the layer's own code, each backend's `forward`):

| backend | 0.10.2 | 0.15.0-0.18.1 | 0.19.0-0.19.1 |
|---|---|---|---|
| FLASHINFER | multiplies by the numbers, whatever the cache | the same | the same, by the query's for FP8 caches alone |
| ROCM_AITER_UNIFIED_ATTN | - | tensors, and asserts that the query's number is 1 | multiplies, where the query is FP8 |
| TRITON_ATTN, ROCM_ATTN | - (TRITON_ATTN: tensors) | tensors, and assert that the query's number is 1 | the same |
| FLASH_ATTN, FLASH_ATTN_DIFFKV, TREE_ATTN, FLEX_ATTENTION, ROCM_AITER_FA | tensors | tensors | tensors |
| MLA: FLASHINFER_MLA (_SPARSE) multiplies, CUTLASS_MLA refuses numbers from 0.19.0 | - | never loaded | never loaded |

"Never loaded": compressed-tensors gives its method to `Attention` alone, so tensors and numbers of an MLA layer stay 1. Pallas
(0.10.2) multiplies by the numbers of keys and values, which that release sets.
"""

from __future__ import annotations

import sys
from typing import Any

from attnfix.compat.fix import Call

_BACKENDS = "vllm.v1.attention.backends"
FLASHINFER, AITER = f"{_BACKENDS}.flashinfer", f"{_BACKENDS}.rocm_aiter_unified_attn"
#: Caches whose values were divided by the tensors when they were written; of others no number may be anything but 1
QUANTISED = frozenset({"fp8", "fp8_e4m3"})
#: On a tensor of scales: the layer's number says the same, and whatever is multiplied by both has it twice
IN_NUMBER = "attnfix_in_number"
#: On a layer: name of a tensor -> its number, of those that were set here
SET = "attnfix_set_scales"


def process_weights_after_loading(call: Call, instance: Any, layer: Any) -> Any:
    """`layer._k_scale` and the like are float32 tensors, one value or one per head; `_k_scale_float` is a float."""
    result = call()
    loaded = {f"{name}_float": largest(getattr(layer, name)) for name in multiplied(layer)}
    if any(getattr(layer, name, None) != scale for name, scale in loaded.items()):
        vars(layer).update(loaded, **{SET: {name: loaded[f"{name}_float"] for name in multiplied(layer)}})
        call.corrected()
    if loaded and not quantises_query(layer):
        for name in ("_k_scale", "_v_scale"):
            if loaded[f"{name}_float"] != 1.0:
                setattr(getattr(layer, name), IN_NUMBER, True)
    return result


def are_in_numbers(target: Any, instance: Any, k_scale: Any, v_scale: Any) -> bool:
    return hasattr(k_scale, IN_NUMBER) or hasattr(v_scale, IN_NUMBER)


def trtllm_prefill_attn_kvfp8_dequant(call: Call, instance: Any, k_scale: Any, v_scale: Any) -> Any:
    """Pages of the cache times the scales, in the dtype of queries.

    TRT-LLM's prefill reads them where queries are not quantised, and multiplies by the numbers besides. While these were 1 that
    was right, so now the pages are copied as they are.
    """
    import torch

    result = call(k_scale=torch.ones_like(k_scale), v_scale=torch.ones_like(v_scale))
    call.corrected()
    return result


def wake_up(call: Call, instance: Any, tags: Any) -> Any:
    """Of a worker. With the cache the engine sets the tensors to 1, in place, since it keeps no calibrated scales.

    By then CUDA graphs hold the numbers. So the tensors say again what the numbers do.
    """
    result = call()
    if tags is None or "kv_cache" in tags:
        for layer in instance.vllm_config.compilation_config.static_forward_context.values():
            for name, scale in vars(layer).get(SET, {}).items():
                getattr(layer, name).detach().fill_(scale)
                call.corrected()
    return result


def multiplied(layer: Any) -> tuple[str, ...]:
    """The layer's tensors whose numbers its backend multiplies by, rightly."""
    backend = type(getattr(layer, "impl", None)).__module__
    if backend not in (FLASHINFER, AITER) or layer.kv_cache_dtype not in QUANTISED:
        return ()
    if quantises_query(layer):
        return "_q_scale", "_k_scale", "_v_scale"
    # A query that is not divided by its scale may not be multiplied by it. AITER then takes the tensors
    return ("_k_scale", "_v_scale") if backend == FLASHINFER else ()


def quantises_query(layer: Any) -> bool:
    """Whether queries come to the backend as FP8, divided by `_q_scale`."""
    if hasattr(layer, "query_quant"):
        return layer.query_quant is not None
    engine: Any = sys.modules[FLASHINFER]  # 0.10.2: its forward does it, where its metadata's builder asks for it
    return engine.supports_trtllm_attention()[0] and not engine.flashinfer_disable_q_quantization()


def largest(scale: Any) -> float:
    return float(scale.detach().max())
