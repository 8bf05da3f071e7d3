"""Proof of vllm.partial-hit-assert: prompts behind a cached prefix, where a hybrid model has a layer with a window.

Spared: hashes of whole blocks, servers without such a layer, and servers that cache no prefixes.
"""

from __future__ import annotations

from typing import Any

from attnfix.patches.lab.vllm.cached_states import CachedStates, case, conversations
from attnfix.patches.lab.vllm.scheduling import SCHEDULER

from . import wrap

_COORDINATOR = "vllm.v1.core.kv_cache_coordinator"
WINDOWED = {"per_layer_sliding_window": 64}


def unit(tokens: int) -> dict[str, Any]:
    """Hashes of so many tokens."""
    return {"cache": {"prefix_match_unit": tokens}}


def deaf(real: Any, coordinator: Any) -> bool:
    return False


class Proof(CachedStates):
    modules = (SCHEDULER, _COORDINATOR)
    needs = f"{_COORDINATOR}:HybridKVCacheCoordinator.__init__: enable_partial_hash_hits"
    absent = "no prefix ends within a block"
    bug = (
        case(conversations(130), drafter=WINDOWED, **unit(8)),
        case(conversations(130, at_once=3), drafter=WINDOWED, max_tokens=64, **unit(4)),
    )
    spared = (
        case(conversations(130), drafter=WINDOWED),
        case(conversations(130), **unit(8)),
        case(conversations(130), drafter=WINDOWED, caching=False, **unit(8)),
    )
    broken = {"the correction does nothing": (wrap.refused, deaf)}
