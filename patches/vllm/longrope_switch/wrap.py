"""Correction of vllm.longrope-switch.

The engine keeps two tables and takes the long one in each step in which some position lies beyond the original length. Keys
that were rotated by the other table stay in the cache. 0.11.1 takes the long one for good where requests can grow so long.
"""

from __future__ import annotations

import hashlib
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.current_config import current, kept_here

_TABLE, _ORIGINAL = "long_short_cos_sin_cache", "original_max_position_embeddings"
#: Has the mark where a model of this process has the long table alone: code that was compiled for both is not taken then
_process: dict[str, bool] = {}
_MARK = "_attnfix_long_alone"


def grows_beyond(target: Any, instance: Any, rope_scaling: Any = None) -> bool:
    """Whether requests of this server can grow beyond the original length, and nobody else reads their KV."""
    if not rope_scaling or rope_scaling.get("rope_type") != "longrope":
        return False
    config = current()
    if config is None or config.model_config is None or config.model_config.max_model_len <= rope_scaling[_ORIGINAL]:
        return False
    if config.compilation_config.cache_dir:
        target.leave_out("compilation_config.cache_dir is set, where code may lie that was compiled for both tables")
        return False
    return kept_here(target, config)


def get_rope(call: Call, instance: Any) -> Any:
    """`forward` looks for positions beyond the original length: with that of the long table there are none, and it adds 0.

    Layers share what is returned: the first one's is corrected.
    """
    rotary = call()
    if getattr(rotary, _ORIGINAL) < rotary.max_position_embeddings:
        setattr(rotary, _TABLE, long_rows(getattr(rotary, _TABLE), getattr(rotary, _ORIGINAL)))
        setattr(rotary, _ORIGINAL, rotary.max_position_embeddings)
        _process[_MARK] = True
        call.corrected()
    return rotary


def is_long(target: Any, instance: Any) -> bool:
    return _MARK in _process


def compute_hash(call: Call, instance: Any) -> str:
    """Of the environment, which compiled code is cached by, too: that code has the length and the tables in it."""
    return cache_key(call())


def long_rows(table: Any, original: int) -> Any:
    """[original + longest, dim] -> [longest, dim]"""
    return table[original:].clone()


def cache_key(stock: str) -> str:
    return hashlib.sha256(f"{stock} long".encode()).hexdigest()
