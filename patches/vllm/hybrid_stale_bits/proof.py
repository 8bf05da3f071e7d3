"""Proof of vllm.hybrid-stale-bits: attention over a pool that recurrent states share, in which blocks change owners.

Spared: states in the format of keys and values, and a model whose layers all have attention.
"""

from attnfix.patches.lab.vllm.hybrid_pool import ALL_ATTENTION, HybridPool, case, talk
from attnfix.patches.vllm.shared import cleared_blocks

from . import wrap

_UTILS = "vllm.v1.worker.utils"
#: Where prefixes of hybrid models are cached as the lab has it
CACHED = "vllm.config.cache:MambaCacheMode"


class Proof(HybridPool):
    modules = (*HybridPool.modules, "vllm.config.cache", _UTILS)
    may_lack = ("vllm.config.cache",)
    needs = f"GPUModelRunner._update_hybrid_attention_mamba_layout or {_UTILS}:KVBlockZeroer"
    absent = "states share no blocks with FlashAttention's keys and values"
    bug = (
        case(talk(), states="float32"),
        case(talk(), kv_cache_dtype="fp8"),
        case(talk(), states="float32", backend="flashinfer.FlashInferBackend", capability=(10, 0)),
        case(talk(shared=64), states="float32", mode="align"),
    )
    spared = (
        case(talk()),
        case(talk(), model=ALL_ATTENTION, states="float32", kv_cache_dtype="fp8"),
        case(talk(shared=64), mode="align"),
    )
    broken = {
        "nothing is cleared": (wrap.are_foreign, lambda real, specs: False),
        "one block is left": (wrap.clear, lambda real, page, ids: real(page, ids[1:])),
        "one tensor alone is cleared": (wrap.pages_of, lambda real, runner: real(runner)[:1]),
        "blocks of later steps are left": (
            wrap,
            "new_blocks",
            lambda step, sizes: cleared_blocks.new_blocks(step, sizes) if step.scheduled_new_reqs else [],
        ),
        "blocks that hold tokens are cleared": (cleared_blocks.filled, lambda real, computed, size: 0),
    }
    broken_where = {"blocks that hold tokens are cleared": CACHED}
