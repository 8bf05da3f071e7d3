"""Proof of vllm.mamba-chunk-blocks: which tokens a request's recurrent state is of, behind a prefix that is cached.

Spared: blocks of one length.
"""

from __future__ import annotations

from typing import Any

from attnfix.patches.lab.vllm.cached_states import CachedStates, case, conversations
from attnfix.patches.lab.vllm.scheduling import QWEN3_NEXT, SCHEDULER

from . import wrap

#: A block of states is as long as attention needs it to be for the state to fit: 48 tokens, or 80; with pages of 64, 128
_SMALL, _LARGE = (
    {
        **QWEN3_NEXT, "num_hidden_layers": 2, "full_attention_interval": 2, "linear_num_value_heads": heads,
        "linear_key_head_dim": 64, "linear_value_head_dim": 64,
    }
    for heads in (2, 4)
)  # fmt: skip
#: A drafter's layer with a window: FlashInfer takes no blocks of 48 tokens, nor of 80, so it has some of 32, or of 64
WINDOWED: dict[str, Any] = {"per_layer_sliding_window": 64}
#: Its tokens take twice the memory of the target's
WIDE = {**WINDOWED, "num_kv_heads": 4}
LAUNCH: dict[str, Any] = {
    "backend": "flashinfer.FlashInferBackend", "max_requests": 8, "blocks": 512, "context": 2048,
}  # fmt: skip
_COORDINATOR, _CACHE = "vllm.v1.core.kv_cache_coordinator", "vllm.v1.kv_cache_interface"
#: The scheduler's rule of releases in which blocks need not divide each other; and of those that cache fewer of them
_RULE, _POSITION = "Scheduler._mamba_block_aligned_split", "get_mamba_prefill_checkpoint_position"
_ANY, _SPARSE = f"{_RULE}: mamba_has_prefill_checkpoint_blocks", f"{_RULE}: {_POSITION}"


class Proof(CachedStates):
    modules = (SCHEDULER, _COORDINATOR, _CACHE)
    needs = f"{_COORDINATOR}:HybridKVCacheCoordinator.__init__: has_partial_mamba_group or {_CACHE}:{_POSITION}"
    absent = "no server starts with blocks of two lengths beside states that are cached"
    bug = (
        case(conversations(130, at_once=3), model=_LARGE, drafter=WIDE, page_size=64, max_tokens=204, **LAUNCH),
        case(conversations(130, at_once=3), model=_SMALL, drafter=WIDE, page_size=16, max_tokens=76, where=_ANY, **LAUNCH),
        case(conversations(500), model=_LARGE, drafter=WINDOWED, page_size=16, max_tokens=128, where=_SPARSE, **LAUNCH),
    )
    spared = (
        case(conversations(130, at_once=3), model=_LARGE, page_size=64, max_tokens=204, **LAUNCH),
        case(conversations(300), model=_SMALL, page_size=16, max_tokens=64, **LAUNCH),
    )
    broken = {
        "the correction does nothing": (wrap.size_of_states, lambda real, groups: min(
            group.kv_cache_spec.block_size for group in groups
        )),
        "blocks are some tokens longer": (wrap.size_of_states, lambda real, groups: real(groups) + 16),
    }  # fmt: skip
