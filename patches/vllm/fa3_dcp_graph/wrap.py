"""Correction of vllm.fa3-dcp-graph."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.rebound import rebound

_BUFFER = "attnfix_dcp_context_kv_lens"
_KERNEL = "flash_attn_varlen_func"


def has_full_graphs(target: Any, instance: Any) -> bool:
    return instance.use_full_cuda_graph


def build(call: Call, instance: Any) -> Any:
    """Returns FlashAttentionMetadata; its `dcp_context_kv_lens` is int32 [requests], or None without DCP.

    A step counts if a graph may be replayed for it, by its tokens: which one is, the runner decides later.
    """
    metadata = call()
    lens = metadata.dcp_context_kv_lens
    if lens is not None:
        metadata.dcp_context_kv_lens = kept(instance, lens)
        if metadata.dcp_context_kv_lens is not lens and metadata.num_actual_tokens <= (instance.max_cudagraph_size or 0):
            call.corrected()
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


def says_no_splits(target: Any, instance: Any, attn_metadata: Any) -> bool:
    function = target.engine_function
    return function is not None and bool(attn_metadata.max_num_splits) and not says_splits(function)


def forward_with_dcp(call: Call, instance: Any, attn_metadata: Any) -> Any:
    """Up to 0.16.0 the engine's function leaves it to FlashAttention to choose the number of splits, whatever its metadata was
    made for: the function's own code is run with the name of the kernel bound to one that is told.
    """
    function = call.target.function
    kernel, several = function.__globals__[_KERNEL], splits(attn_metadata)

    def told(*args: Any, **launch: Any) -> Any:
        return kernel(*args, **{"num_splits": several, **launch})

    result = call.run(rebound(function, **{_KERNEL: call.guard(told, kernel)}))
    call.corrected()
    return result


def says_splits(function: Any) -> bool:
    """Whether the function itself passes `num_splits` to the kernel: a call's keywords are constants, alone or in a tuple."""
    constants = function.__code__.co_consts
    return "num_splits" in constants or any("num_splits" in names for names in constants if isinstance(names, tuple))


def splits(metadata: Any) -> int:
    return metadata.max_num_splits
