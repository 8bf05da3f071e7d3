"""Stand-ins for GPU kernels, at the entry points where sglang calls them, and what lies in memory that nobody wrote."""

from __future__ import annotations

from typing import Any


def install() -> None:
    """Put the stand-ins in place: once, before any server is constructed."""


def poison(runner: Any) -> None:
    """Fill the KV pools as if others had used them: finite, and far from what any request wrote."""
    import torch

    draw = torch.Generator().manual_seed(1)
    for buffer in _buffers(runner.token_to_kv_pool):
        noise = torch.randint(-60, 60, buffer.shape, generator=draw, dtype=torch.int8)
        buffer.copy_(noise.to(torch.float32).to(buffer.dtype) if buffer.is_floating_point() else noise.to(buffer.dtype))


def _buffers(pool: Any) -> list[Any]:
    inner = [getattr(pool, name) for name in ("full_kv_pool", "swa_kv_pool") if hasattr(pool, name)]
    if inner:
        return [buffer for one in inner for buffer in _buffers(one)]
    return [buffer for name in ("k_buffer", "v_buffer", "kv_buffer") for buffer in getattr(pool, name, None) or []]
