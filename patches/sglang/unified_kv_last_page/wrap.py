"""Correction of sglang.unified-kv-last-page.

The allocator hands out pages from 1 on, so that a pool has one page more than its size says. The engine's pool of compressed KV
is made with as many blocks more.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.rebound import rebound

_POOL = "DeepSeekV4UnifiedKVPool"
#: Tokens of a block of compressed KV
_BLOCK = 128


def init(call: Call, instance: Any, page_size: int) -> None:
    stock = call.target.function.__globals__[_POOL]

    def pool(*, num_blocks: int, **given: Any) -> Any:
        return stock(num_blocks=num_blocks + blocks(page_size), **given)

    call.run(rebound(call.target.function, **{_POOL: call.guard(pool, stock)}))
    if instance.unified_kv_pool is not None:
        call.corrected()


def blocks(page_size: int) -> int:
    """Blocks that hold the compressed KV of a page."""
    return -(-page_size // _BLOCK)
