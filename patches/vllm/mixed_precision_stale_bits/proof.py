"""Proof of vllm.mixed-precision-stale-bits: attention over a pool of FP8 and bfloat16 layers, in which blocks change owners.

Spared: pools of one format, with windows and without, and layers of two formats that share no pool.
"""

from typing import Any

from attnfix.patches.lab.vllm.shared_pool import ALL_FULL, RUNNERS, SharedPool, case, talk
from attnfix.patches.vllm.shared import cleared_blocks

from . import wrap

_INTERFACE = "vllm.v1.kv_cache_interface"
#: Up to 0.26.0. Later releases have a runner that the lab does not build, and clear a block before a connector fills it
BEFORE = f"no {_INTERFACE}:KVCacheConfig.has_mixed_precision_kv_cache"
FP8: dict[str, Any] = {"kv_cache_dtype": "fp8"}
WINDOWS_KEPT: dict[str, Any] = {**FP8, "skip_layers": ["sliding_window"]}
FULL_KEPT: dict[str, Any] = {**FP8, "skip_layers": ["3"]}
#: Blocks of 128 tokens, of which the kernel sees two of 64
SPLIT: dict[str, Any] = {"backend": "flashinfer.FlashInferBackend", "capability": (10, 0), "page_size": 64}


def on_both(talk, **launch):
    return tuple(case(talk, BEFORE if runner == "V2" else "", runner=runner, **launch) for runner in RUNNERS)


class Proof(SharedPool):
    modules = (*SharedPool.modules, _INTERFACE)
    bug = (
        *on_both(talk(), **WINDOWS_KEPT),
        *on_both(talk(shared=64), **WINDOWS_KEPT, page_size=32),
        *(case(talk(), BEFORE, runner=runner, **FULL_KEPT) for runner in RUNNERS),
        case(talk(), **WINDOWS_KEPT, **SPLIT),
        case(talk(), BEFORE, **WINDOWS_KEPT, brought=True),
    )
    spared = (
        *on_both(talk(), **FP8),
        case(talk()),
        case(talk(), BEFORE, model=ALL_FULL, **FP8, skip_layers=["0"]),
    )
    broken = {
        "nothing is cleared": (wrap.is_mixed, lambda real, specs: False),
        "blocks that hold tokens are cleared": (cleared_blocks.filled, lambda real, computed, size: 0),
        "the first new block of a prompt is left": (
            cleared_blocks.filled,
            lambda real, computed, size: real(computed, size) + 1,
        ),
        "the first group's alone are cleared": (
            wrap,
            "new_blocks",
            lambda step, sizes: cleared_blocks.new_blocks(step, sizes[:1]),
        ),
    }
