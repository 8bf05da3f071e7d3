"""Correction of vllm.longrope-switch.

The engine keeps two tables and takes the long one in each step in which some position lies beyond the original length. Keys
that were rotated by the other table stay in the cache. 0.11.1 takes the long one for good where requests can grow so long.
"""

from __future__ import annotations

import hashlib
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.current_config import current, kept_here

_TABLE = "long_short_cos_sin_cache"
#: Whether a model of this process has the long table alone: code that was compiled for both is not taken then
_long_alone: dict[str, bool] = {}


def grows_beyond(target: Any, instance: Any, original_max_position_embeddings: int) -> bool:
    """Whether requests of this server can grow beyond the original length, and nobody else reads their KV."""
    config = current()
    if config is None or config.model_config is None or config.model_config.max_model_len <= original_max_position_embeddings:
        return False
    return kept_here(target, config)


def make(call: Call, instance: Any) -> None:
    """`forward` looks for positions beyond the original length: with that of the long table there are none, and it adds 0."""
    call()
    if instance.original_max_position_embeddings >= instance.max_position_embeddings:
        return
    table = getattr(instance, _TABLE)
    setattr(instance, _TABLE, long_rows(table, instance.original_max_position_embeddings))
    instance.original_max_position_embeddings = instance.max_position_embeddings
    _long_alone[_TABLE] = True
    call.corrected()


def is_long(target: Any, instance: Any) -> bool:
    return bool(_long_alone)


def compute_hash(call: Call, instance: Any) -> str:
    """Of the config, which compiled code is cached by: it has the length and the tables in it."""
    return cache_key(call())


def long_rows(table: Any, original: int) -> Any:
    """[original + longest, dim] -> [longest, dim]"""
    return table[original:].clone()


def cache_key(stock: str) -> str:
    return hashlib.sha256(f"{stock} long".encode()).hexdigest()[: len(stock)]
