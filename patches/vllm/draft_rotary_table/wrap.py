"""Correction of vllm.draft-rotary-table.

A drafter's rotary table has a row for each of its own `max_position_embeddings`, and Model Runner V2 drafts up to the target's
length. The engine's own rule of 0.33.0 for config.json is applied where Model Runner V2 makes the drafter: V1 keeps its table.
"""

from __future__ import annotations

import hashlib
from typing import Any

from attnfix.compat.fix import Call

#: Drafters that read the target's positions, and have a config.json of their own
METHODS = ("eagle", "eagle3", "mtp", "dflash", "dspark")
#: RoPE types whose rows do not depend on their number -> key of the factor that a table's length is multiplied by
_ROWS_ALONE = {"default": "", "llama3": "", "proportional": "", "ntk": "", "linear": "factor"}
#: On the engine's config of drafts: rows of the table, for the hash that compiled code is cached by
_MARK = "_attnfix_rotary_rows"


def short_configs(target: Any, instance: Any, vllm_config: Any) -> list[Any]:
    """The drafter's configs whose table would end before the target's length."""
    drafts = vllm_config.speculative_config
    if drafts is None or drafts.method not in METHODS:
        return []
    model, length = drafts.draft_model_config, vllm_config.model_config.max_model_len
    own = {id(config): config for config in (model.hf_config, model.hf_text_config)}  # up to 0.12.0 they are two
    return [config for config in own.values() if rows(config) < length]


def init_speculator(call: Call, instance: Any, vllm_config: Any) -> Any:
    """Returns the speculator, whose drafter is loaded later: by then its config has the target's length."""
    drafts, length = vllm_config.speculative_config, vllm_config.model_config.max_model_len
    for config in call.found:
        config.max_position_embeddings = table_rows(length)
    vars(drafts)[_MARK] = length
    call.corrected()
    return call()


def has_longer_table(target: Any, instance: Any) -> bool:
    return _MARK in vars(instance)


def compute_hash(call: Call, instance: Any) -> Any:
    """Compiled code has the number of rows in it: what was compiled for the short table is not taken, nor replaced."""
    return cache_key(call(), vars(instance)[_MARK])


def table_rows(length: int) -> int:
    return length


def cache_key(stock: str, length: int) -> str:
    return hashlib.sha256(f"{stock} {length}".encode()).hexdigest()


def rows(config: Any) -> float:
    """Of the shortest rotary table that a model makes of this config.json; infinite where it may not be made longer."""
    positions = getattr(config, "max_position_embeddings", None)
    factors = [_factor(rotary) for rotary in _rotary(config)]
    if not isinstance(positions, int) or None in factors:
        return float("inf")
    return positions * min(factor for factor in factors if factor is not None)


def _rotary(config: Any) -> list[dict[str, Any]]:
    """Parameters of the model's rotary embedding, or of those of its kinds of layers."""
    found = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return [value for value in found.values() if isinstance(value, dict)] or [found]


def _factor(rotary: dict[str, Any]) -> float | None:
    """What the table's length is multiplied by; None where frequencies depend on it."""
    kind = rotary.get("rope_type", rotary.get("type", "default"))
    if kind not in _ROWS_ALONE or rotary.get("use_fope"):
        return None
    factor = rotary.get(_ROWS_ALONE[kind], 1)
    return factor if isinstance(factor, int | float) else None
