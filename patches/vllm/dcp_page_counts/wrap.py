"""Correction of vllm.dcp-page-counts."""

from __future__ import annotations

import sys
from typing import Any

from attnfix.compat.fix import NOT_NEEDED

_BACKEND = "vllm.v1.attention.backends.flashinfer"


def compute_kv_metadata(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`(num_blocks_np, seq_lens_np, block_table_tensor, num_reqs, page_size)`; int32 [requests], on the host.

    By then the engine has taken the new tokens off the lengths of prefills, in place: `seq_lens_np` holds their context, of all
    ranks. `num_blocks_np` was counted before.
    """
    if not instance.use_dcp:
        return NOT_NEEDED
    lens, page_size = local_lens(args[1], instance), args[4]
    result = wrapped((lens + (page_size - 1)) // page_size, lens, *args[2:], **kwargs)
    wrapped.corrected(rows=len(lens))
    return result


def local_lens(seq_lens: Any, builder: Any) -> Any:
    """How many of so many tokens lie on this rank, by the engine's own reckoning."""
    import torch

    count = sys.modules[_BACKEND].get_dcp_local_seq_lens  # type: ignore[attr-defined]
    lens = torch.from_numpy(seq_lens)
    return count(lens, builder.dcp_world_size, builder.dcp_rank, builder.dcp_kv_cache_interleave_size).numpy()
