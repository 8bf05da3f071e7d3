"""Correction of sglang.dsa-short-prompt-keys.

The rotary kernel writes queries and keys in place, each in threads of its own. Index keys without queries are given to it as
both: a thread that comes late rotates what another one has rotated. The engine's code runs with a copy in the queries' place.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def in_place(target: Any, instance: Any) -> bool:
    """Whether a kernel rotates the indexer's keys. The engine's code in torch makes new tensors of them."""
    chosen = getattr(instance.rotary_emb, "_forward_method", None)
    return getattr(chosen, "__name__", "") != "forward_native"


def get_k_bf16(call: Call, instance: Any) -> Any:
    stock = instance.rotary_emb

    def rotary_emb(positions: Any, query: Any, key: Any) -> Any:
        return stock(positions, apart(query, key), key)

    result = call.run(call.target.function, _Indexer(instance, call.guard(rotary_emb, stock)))
    call.corrected()
    return result


def apart(query: Any, key: Any) -> Any:
    """Queries that are no keys; query, key: [tokens, rotary dimensions], here the same tensor."""
    return query.clone() if query is key else query


class _Indexer:
    """The engine's indexer with another rotary embedding."""

    def __init__(self, engines: Any, rotary_emb: Any):
        self._engines, self.rotary_emb = engines, rotary_emb

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engines, name)
