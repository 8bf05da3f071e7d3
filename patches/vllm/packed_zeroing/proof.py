"""Proof of vllm.packed-zeroing: requests of DeepSeek-V4, whose layers lie within one block, and of a model whose layers a
connector puts there.

Spared: layers whose memory is their own, and one layer in each block.
"""

from typing import Any

from attnfix.patches.lab.vllm.packed_pool import WINDOWS, PackedPool, case, talk

from . import wrap

FP8: dict[str, Any] = {"kv_cache_dtype": "fp8", "skip_layers": ["sliding_window"]}
#: Of each kind two layers, of which the second begins within a block
TWO_OF_EACH = {**WINDOWS, "layer_types": ["sliding_attention", "full_attention"] * 2}


class Proof(PackedPool):
    needs = "vllm.v1.kv_cache_interface:KVCacheConfig.has_mixed_precision_kv_cache"
    absent = "a pool in which layers lie within one block is not cleared"
    bug = (
        case(talk()),
        case(talk(), model=TWO_OF_EACH, together=True, blocks=45, **FP8),
    )
    spared = (
        case(talk(), model=TWO_OF_EACH, **FP8),
        case(talk(), model=WINDOWS, together=True, **FP8),
    )
    broken = {
        "the clearing begins at the layer's part": (wrap.at_the_start, lambda real, cache: cache),
        "nothing is moved": (wrap.begins_within, lambda real, cache: False),
    }
