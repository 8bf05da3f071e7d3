"""Correction of vllm.dsv32-indexer-rotary.

Attention hands its own rotary embedding to the indexer, whose queries and keys are rotated by halves and not in pairs. Each
indexer gets one of its own when it is made, and a `forward` that hands it on: the engine compiles a layer whole, and a compiler
has to see through it.
"""

from __future__ import annotations

import sys
from types import MethodType
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.current_config import kept_here

#: The indexer's rotary embedding, where the engine finds its buffers: a server that sleeps keeps those that a model names
ROTARY = "attnfix_rotary"


def has_an_indexer(target: Any, instance: Any, vllm_config: Any, config: Any) -> bool:
    """Whether an indexer is made, nobody else reads its keys, and what is compiled is traced on this server."""
    if not hasattr(config, "index_topk") or not kept_here(target, vllm_config):
        return False
    if vllm_config.compilation_config.cache_dir or getattr(sys.modules["vllm.envs"], "VLLM_USE_AOT_COMPILE", False):
        target.leave_out("compiled code may be taken that rotates in pairs: cache_dir or VLLM_USE_AOT_COMPILE is set")
        return False
    return True


def init(
    call: Call, instance: Any, qk_rope_head_dim: int, rope_theta: float = 10000, rope_scaling: Any = None,
    max_position_embeddings: int = 8192,
) -> None:  # fmt: skip
    """Its defaults are those of the engine's function. The engine makes one rotary embedding for all layers."""
    call()
    indexer = instance.indexer
    rotary = call.target.function.__globals__["get_rope"](
        qk_rope_head_dim, rotary_dim=qk_rope_head_dim, max_position=max_position_embeddings, base=rope_theta,
        rope_scaling=rope_scaling, is_neox_style=by_halves(),
    )  # fmt: skip
    setattr(indexer, ROTARY, rotary)
    indexer.forward = MethodType(forward, indexer)
    call.corrected()


def by_halves() -> bool:
    return True


def forward(self: Any, hidden_states: Any, qr: Any, positions: Any, rotary_emb: Any) -> Any:
    """The indexer's, with its own rotary embedding in the place of attention's."""

    def turned(positions: Any, query: Any, key: Any) -> tuple[Any, Any]:
        query_out, key_out = self.attnfix_rotary(positions, query, key)
        return query_out.view(query.shape), key_out.view(key.shape)  # that of YaRN has one dimension more by halves

    return type(self).forward(self, hidden_states, qr, positions, turned)
