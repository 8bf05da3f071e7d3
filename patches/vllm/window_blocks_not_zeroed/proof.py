"""Proof of vllm.window-blocks-not-zeroed: layers with a window attend over a pool that states or FP8 layers share.

Spared: pools without windows, and states in the format of keys and values.
"""

from attnfix.patches.lab.vllm.hybrid_pool import HybridPool, States, case, talk
from attnfix.patches.lab.vllm.shared_pool import WINDOWS, Pool
from attnfix.patches.vllm.shared import cleared_blocks

from . import wrap

_INTERFACE = "vllm.v1.kv_cache_interface"
MIXED = f"{_INTERFACE}:KVCacheConfig.has_mixed_precision_kv_cache"
TRTLLM = {"backend": "flashinfer.FlashInferBackend", "capability": (10, 0)}


class Proof(HybridPool):
    modules = (*HybridPool.modules, "vllm.v1.worker.utils", _INTERFACE)
    needs = f"{_INTERFACE}:KVCacheConfig.needs_kv_cache_zeroing"
    absent = "no block is cleared"
    bug = (
        case(talk(), windows=(3,), blocks=30, kv_cache_dtype="fp8"),
        case(talk(), windows=(3,), blocks=30, kv_cache_dtype="fp8", **TRTLLM),  # type: ignore[arg-type]
        case(talk(), windows=(1, 3), blocks=30, states="float32"),
        case(talk(), MIXED, model=WINDOWS, kv_cache_dtype="fp8", skip_layers=["3"]),
    )
    spared = (
        case(talk(), blocks=30, kv_cache_dtype="fp8"),
        case(talk(), windows=(3,), blocks=40),
    )
    broken = {
        "nothing is cleared": (wrap.are_foreign, lambda real, specs: False),
        "blocks of later steps are left": (
            wrap,
            "new_blocks",
            lambda step, sizes: cleared_blocks.new_blocks(step, sizes) if step.scheduled_new_reqs else [],
        ),
        "the first new block of a prompt is left": (
            cleared_blocks.filled,
            lambda real, computed, size: real(computed, size) + 1,
        ),
    }

    def run(self, case, seed):
        self.pool = Pool if "model" in case.launch else States  # type: ignore[assignment]  # without states
        return super().run(case, seed)
