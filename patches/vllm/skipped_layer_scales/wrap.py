"""Correction of vllm.skipped-layer-scales.

Who reads what of a layer whose cache is not quantised, in 0.20.0-0.33.0:

| reader | what it does with scales |
|---|---|
| FLASHINFER, FlashInfer's wrappers | multiplies by the numbers, whatever the cache; from 0.25.0 by the query's, too |
| FLASHINFER, TRT-LLM's kernels and XQA | leaves them out |
| FLASH_ATTN, TRITON_ATTN | hand over the tensors, which their kernels take for FP8 alone |
| CPU_ATTN, backends of ROCm and others | hand over numbers or tensors; their kernels were not read |

Where nothing was divided by a scale, 1 is right for all of them; the first alone needs it, and no other is touched. MLA:
compressed-tensors gives its method to `Attention` alone.
"""

from __future__ import annotations

import sys
from typing import Any

from attnfix.compat.fix import Call

#: Where `BaseKVCacheMethod` is, which leaves 1 where this says that a cache is not quantised
_BASE = "vllm.model_executor.layers.quantization.kv_cache"
#: Parameters of a layer while a checkpoint is loaded. Of the query, too: only an FP8 cache makes queries of FP8
LOADED = ("k_scale", "v_scale", "q_scale")
_MULTIPLIES = "FLASHINFER"


def of_no_use(target: Any, instance: Any, layer: Any) -> list[Any]:
    """Scales that were loaded for a layer whose cache is not quantised: float32, one value or one for each head of KV."""
    if layer.attn_backend.get_name() != _MULTIPLIES or is_quantised(layer):
        return []
    # Not there where weights are loaded anew without them
    loaded = [getattr(layer, name) for name in LOADED if hasattr(layer, name)]
    return [scale for scale in loaded if bool((scale.detach() != 1).any())]


def process_weights_after_loading(call: Call, instance: Any, layer: Any) -> Any:
    """Before the engine makes the layer's tensors and numbers of them, so that all its copies agree."""
    for scale in call.found:
        scale.detach().fill_(1)
    call.corrected()
    return call()


def is_quantised(layer: Any) -> bool:
    """As the base class asks: the layer, which knows of --kv-cache-dtype-skip-layers and of an explicit bfloat16."""
    base: Any = sys.modules[_BASE]
    return base.is_quantized_kv_cache(layer.kv_cache_dtype)
