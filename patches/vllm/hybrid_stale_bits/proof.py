"""Proof of vllm.hybrid-stale-bits: attention over a pool in which blocks of states become blocks of keys and values.

Spared: states in the format of keys and values, and a model without states.
"""

from attnfix.patches.lab.vllm.scheduling import NEMOTRON_H, QWEN3_NEXT
from attnfix.patches.lab.vllm.shared_pool import ALL_FULL, RUNNERS, SharedPool, case, talk
from attnfix.patches.vllm.shared import cleared_blocks

from . import wrap

_FLOAT32 = {"mamba_ssm_cache_dtype": "float32"}


class Proof(SharedPool):
    modules = (RUNNERS["V1"], *SharedPool.modules[2:])
    bug = (
        case(talk(), model=NEMOTRON_H, caching=False, cache=_FLOAT32),
        case(talk(), model=QWEN3_NEXT, caching=False, cache=_FLOAT32, page_size=32),
        case(talk(), model=QWEN3_NEXT, caching=False, kv_cache_dtype="fp8"),
        case(talk(shared=64), model=NEMOTRON_H, mode="align", cache=_FLOAT32),
        case(talk(), model=NEMOTRON_H, mode="none", cache=_FLOAT32, drafts=2),
    )
    spared = (
        case(talk(waves=2), model=NEMOTRON_H, caching=False),
        case(talk(waves=2), model=ALL_FULL),
    )
    broken = {
        "nothing is cleared": (wrap.has_foreign_states, lambda real, specs: False),
        "blocks that hold tokens are cleared": (cleared_blocks.filled, lambda real, computed, size: 0),
        "the first new block is left": (cleared_blocks.filled, lambda real, computed, size: real(computed, size) + 1),
    }
