"""Correction of vllm.mamba-chunk-blocks."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute


def counts_in_other_blocks(target: Any, instance: Any, request: Any) -> int:
    """Tokens of a block of recurrent states, where the scheduler counts in blocks of another length; else 0.

    A request that decodes is not cut, whatever the length.
    """
    if request.num_computed_tokens >= max(request.num_prompt_tokens, request.num_tokens - 1):
        return 0
    size = size_of_states(instance.kv_cache_config.kv_cache_groups)
    return size if size != instance.cache_config.block_size else 0


def size_of_states(groups: Any) -> int:
    """Tokens of a block of the groups of layers with a recurrent state; of the last one, as all have the same."""
    size = 0
    for group in groups:
        if type(group.kv_cache_spec).__name__ == "MambaSpec":
            size = group.kv_cache_spec.block_size
    return size


class _Sized:
    """The config of the cache, for one call: all is the engine's but the length of a block."""

    def __init__(self, config: Any, block_size: int):
        self._config, self.block_size = config, block_size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


def mamba_block_aligned_split(call: Call, instance: Any) -> int:
    """Returns how many tokens are scheduled: by the engine's own rule, in blocks of states. The rule changes nothing.

    The scheduler alone has another config, and only meanwhile: workers of this process keep theirs.
    """
    stock: int = call()
    with attribute(instance, "cache_config", _Sized(instance.cache_config, call.found)):
        tokens: int = call()
    if tokens != stock:
        call.corrected()
    return tokens
