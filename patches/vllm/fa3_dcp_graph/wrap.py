"""Correction of vllm.fa3-dcp-graph."""

from __future__ import annotations

from functools import partial
from typing import Any

from attnfix.compat.fix import NOT_NEEDED
from attnfix.patches.rebound import rebound

_BUFFER = "attnfix_dcp_context_kv_lens"
_KERNEL = "flash_attn_varlen_func"


def build(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """Returns FlashAttentionMetadata; its `dcp_context_kv_lens` is int32 [requests], or None without DCP."""
    metadata = wrapped(*args, **kwargs)
    if instance.use_full_cuda_graph and metadata.dcp_context_kv_lens is not None:
        metadata.dcp_context_kv_lens = kept(instance, metadata.dcp_context_kv_lens)
        wrapped.corrected()
    return metadata


def kept(builder: Any, lens: Any) -> Any:
    """`lens`, at an address that stays; the rows behind them, which a larger graph would read, are 0.

    The buffer is made at the builder's first batch, before anything is captured. A batch that is larger, which no graph is
    captured for, keeps its own tensor.
    """
    buffer = vars(builder).get(_BUFFER)
    if buffer is None:
        buffer = lens.new_zeros(builder.vllm_config.scheduler_config.max_num_seqs)
        setattr(builder, _BUFFER, buffer)
    count = len(lens)
    if count > len(buffer):
        return lens
    buffer[count:].zero_()
    return buffer[:count].copy_(lens)


def forward_with_dcp(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`(query, key, value, key_cache, value_cache, output, attn_metadata, …)`.

    Up to 0.16.0 the engine's function leaves it to FlashAttention to choose the number of splits, whatever its metadata was
    made for: the function's own code is run with the name of the kernel bound to one that is told.
    """
    function = wrapped.engine_function
    metadata = args[6]
    if function is None or not metadata.max_num_splits or says_splits(function):
        return NOT_NEEDED
    told = partial(function.__globals__[_KERNEL], num_splits=splits(metadata))
    result = wrapped.run(rebound(function, **{_KERNEL: told}), instance, *args, **kwargs)
    wrapped.corrected()
    return result


def says_splits(function: Any) -> bool:
    """Whether the function itself passes `num_splits` to the kernel: a call's keywords are constants, alone or in a tuple."""
    constants = function.__code__.co_consts
    return "num_splits" in constants or any("num_splits" in names for names in constants if isinstance(names, tuple))


def splits(metadata: Any) -> int:
    return metadata.max_num_splits
