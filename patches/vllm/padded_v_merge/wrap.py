"""Correction of vllm.padded-v-merge."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def strides_differ(target: Any, instance: Any, prefix_output: Any, suffix_output: Any) -> bool:
    return prefix_output.stride(1) != suffix_output.stride(1)


def merge_attn_states(call: Call, instance: Any, prefix_output: Any, suffix_output: Any) -> Any:
    """Outputs are [tokens, heads, head size].

    The kernels read both parts by the prefix's head stride. Where the parts have two, both go in packed; one that is packed
    already is not copied.
    """
    result = call(prefix_output=packed(prefix_output), suffix_output=packed(suffix_output))
    call.corrected(rows=suffix_output.shape[0])
    return result


def packed(part: Any) -> Any:
    return part.contiguous()
