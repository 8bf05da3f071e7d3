"""Correction of vllm.padded-v-merge."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import NOT_NEEDED


def merge_attn_states(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`(output, prefix_output, prefix_lse, suffix_output, …)`; outputs are [tokens, heads, head size].

    The kernels read both parts by the prefix's head stride. Where the parts have two, both go in packed; one that is packed
    already is not copied.
    """
    prefix, suffix = kwargs["prefix_output"], kwargs["suffix_output"]
    if prefix.stride(1) == suffix.stride(1):
        return NOT_NEEDED
    result = wrapped(*args, **{**kwargs, "prefix_output": packed(prefix), "suffix_output": packed(suffix)})
    wrapped.corrected(rows=suffix.shape[0])
    return result


def packed(part: Any) -> Any:
    return part.contiguous()
