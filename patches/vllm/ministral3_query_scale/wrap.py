"""Correction of vllm.ministral3-query-scale.

The engine reads the scaling of queries from `llama_4_scaling`, which Mistral's own files have. In the format of transformers
it stands among the settings of RoPE. Each layer gets it when it is made; its `forward` is the engine's, which applies it.
"""

from __future__ import annotations

import hashlib
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.current_config import current

_BETA, _ORIGINAL = "llama_4_scaling_beta", "original_max_position_embeddings"
#: Has the mark where queries of a model of this process are scaled: code that was compiled without is not taken then
_process: dict[str, bool] = {}
_MARK = "_attnfix_queries_scaled"


def unread(target: Any, instance: Any, config: Any) -> tuple[float, int] | None:
    """The scaling that the engine does not read, where requests can grow so long that it is not 1."""
    rope = getattr(config, "rope_parameters", None) or {}
    found: tuple[Any, Any] = rope.get(_BETA), rope.get(_ORIGINAL)
    if not all(found) or getattr(config, "llama_4_scaling", None) is not None:
        return None
    server = current()
    if server is not None and server.model_config.max_model_len <= found[1]:
        return None
    if server is not None and server.compilation_config.cache_dir:
        target.leave_out("compilation_config.cache_dir is set, where code may lie that was compiled without the scaling")
        return None
    return found


def init(call: Call, instance: Any) -> None:
    call()
    instance.llama_4_scaling_beta, instance.llama_4_scaling_original_max_position_embeddings = scaling(*call.found)
    instance.do_llama_4_scaling = True
    _process[_MARK] = True
    call.corrected()


def scaling(beta: float, original: int) -> tuple[float, int]:
    """Queries at position p are multiplied by 1 + beta * ln(1 + floor(p / original))."""
    return beta, original


def is_scaled(target: Any, instance: Any) -> bool:
    return _MARK in _process


def compute_hash(call: Call, instance: Any) -> str:
    """Compiled code is cached by it, and multiplies queries or not: it does not tell from the engine's config."""
    return cache_key(call())


def cache_key(stock: str) -> str:
    return hashlib.sha256(f"{stock} scaled".encode()).hexdigest()[: len(stock)]
