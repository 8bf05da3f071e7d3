"""What fixes share about states that prefill keeps for the radix cache: the tokens between them, and a batch on the host."""

from __future__ import annotations

from copy import copy
from typing import Any


def chunk_of_the_cache(names: dict[str, Any]) -> int | None:
    """Tokens between two states that the radix cache may keep, as the engine's module asks for them in each release."""
    for name in ("get_global_server_args", "get_server_args"):  # 0.5.13-0.5.15.post1, 0.5.16-0.5.17
        if name in names:
            return int(names[name]().mamba_cache_chunk_size)
    ask = names.get("mamba_cache_chunk_size")  # from 0.5.18
    return int(ask()) if ask else None


def on_host(forward_batch: Any) -> Any:
    """A view of the batch whose tensors that say what to track are on the host."""
    view = copy(forward_batch)
    for name in ("mamba_track_mask", "extend_seq_lens", "mamba_track_indices", "mamba_track_seqlens", "extend_prefix_lens"):
        setattr(view, name, getattr(forward_batch, name).cpu())
    return view
