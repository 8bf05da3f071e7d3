"""Corrections of vllm.dcp-page-counts."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from copy import copy
from typing import Any

from attnfix.compat.fix import NOT_NEEDED

_BACKEND = "vllm.v1.attention.backends.flashinfer"


def build(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`(common_prefix_len, common_attn_metadata, …)`. The engine takes the new tokens of prefills off `seq_lens_cpu`, in place.

    All groups of layers, drafters and Mamba's builders build of that metadata, or of copies that share the tensor: here the
    engine gets lengths of its own. (In 0.14.0-0.15.1 it copies them from the GPU by itself.)
    """
    if instance.dcp_world_size == 1:
        return NOT_NEEDED
    prefix, common, *others = args
    if "seq_lens_cpu" in wrapped.function.__code__.co_names:
        common = with_own_lens(common)
    former, instance.dcp_kv_cache_interleave_size = instance.dcp_kv_cache_interleave_size, interleave(instance)
    try:
        result = wrapped(prefix, common, *others, **kwargs)
    finally:
        instance.dcp_kv_cache_interleave_size = former
    wrapped.corrected(rows=common.num_reqs)
    return result


def interleave(builder: Any) -> int:
    """How many tokens in a row lie on one rank. The builder reads the option's former name, which from 0.12.0 stays 1."""
    parallel = builder.vllm_config.parallel_config
    return getattr(parallel, "cp_kv_cache_interleave_size", builder.dcp_kv_cache_interleave_size)


def with_own_lens(common: Any) -> Any:
    """The same metadata with a copy of `seq_lens_cpu`; where that is computed when it is asked for, `common` keeps it, too."""
    may_wait = getattr(sys.modules[_BACKEND], "gpu_sync_allowed", nullcontext)  # from 0.28.0 the engine can forbid it
    with may_wait():
        lens = common.seq_lens_cpu
    own = copy(common)
    setattr(own, "_seq_lens_cpu" if "_seq_lens_cpu" in vars(own) else "seq_lens_cpu", lens.clone())
    return own


def compute_kv_metadata(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`(num_blocks_np, seq_lens_np, block_table_tensor, num_reqs, page_size)`; int32 [requests], on the host.

    By then the engine has taken the new tokens off the lengths of prefills, in place: `seq_lens_np` holds their context, of all
    ranks. `num_blocks_np` was counted before.
    """
    if instance.dcp_world_size == 1:
        return NOT_NEEDED
    lens, page_size = local_lens(args[1], instance), args[4]
    return wrapped((lens + (page_size - 1)) // page_size, lens, *args[2:], **kwargs)


def local_lens(seq_lens: Any, builder: Any) -> Any:
    """How many of so many tokens lie on this rank, by the engine's own reckoning."""
    import torch

    count = sys.modules[_BACKEND].get_dcp_local_seq_lens  # type: ignore[attr-defined]
    lens = torch.from_numpy(seq_lens)
    return count(lens, builder.dcp_world_size, builder.dcp_rank, builder.dcp_kv_cache_interleave_size).numpy()
