"""Corrections of vllm.dcp-page-counts."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from copy import copy
from typing import Any

from attnfix.compat.fix import Call

_BACKEND = "vllm.v1.attention.backends.flashinfer"


def on_several_ranks(target: Any, instance: Any) -> bool:
    return instance.dcp_world_size != 1


def build(call: Call, instance: Any, common_attn_metadata: Any) -> Any:
    """The engine takes the new tokens of prefills off `seq_lens_cpu`, in place.

    All groups of layers, drafters and Mamba's builders build of that metadata, or of copies that share the tensor: here the
    engine gets lengths of its own. (In 0.14.0-0.15.1 it copies them from the GPU by itself.) A step without prefills, whose
    interleave size is the builder's, is right so far and not counted here; its pages are in `compute_kv_metadata`.
    """
    common = common_attn_metadata
    if "seq_lens_cpu" in call.target.function.__code__.co_names:
        common = with_own_lens(common)
    former, instance.dcp_kv_cache_interleave_size = instance.dcp_kv_cache_interleave_size, interleave(instance)
    try:
        result = call(common_attn_metadata=common)
        other_size = former != instance.dcp_kv_cache_interleave_size
    finally:
        instance.dcp_kv_cache_interleave_size = former
    taken_off = common is not common_attn_metadata and not lens_of(common).equal(lens_of(common_attn_metadata))
    if other_size or taken_off:
        call.corrected(rows=common.num_reqs)
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
    setattr(own, _of_lens(own), lens.clone())
    return own


def lens_of(common: Any) -> Any:
    """Its own lengths, which nobody waits for."""
    return getattr(common, _of_lens(common))


def _of_lens(common: Any) -> str:
    return "_seq_lens_cpu" if "_seq_lens_cpu" in vars(common) else "seq_lens_cpu"


def compute_kv_metadata(call: Call, instance: Any, num_blocks_np: Any, seq_lens_np: Any, page_size: int) -> Any:
    """`seq_lens_np`, `num_blocks_np`: int32 [requests], on the host.

    By then the engine has taken the new tokens off the lengths of prefills, in place: `seq_lens_np` holds their context, of all
    ranks. `num_blocks_np` was counted before. A step in which this rank holds all that they count is right and not counted.
    """
    lens = local_lens(seq_lens_np, instance)
    blocks = (lens + (page_size - 1)) // page_size
    wrong = ((lens != seq_lens_np) | (blocks != num_blocks_np)).any()
    result = call(num_blocks_np=blocks, seq_lens_np=lens)
    if wrong:
        call.corrected(rows=len(lens))
    return result


def local_lens(seq_lens: Any, builder: Any) -> Any:
    """How many of so many tokens lie on this rank, by the engine's own reckoning."""
    import torch

    count = sys.modules[_BACKEND].get_dcp_local_seq_lens  # type: ignore[attr-defined]
    lens = torch.from_numpy(seq_lens)
    return count(lens, builder.dcp_world_size, builder.dcp_rank, builder.dcp_kv_cache_interleave_size).numpy()
