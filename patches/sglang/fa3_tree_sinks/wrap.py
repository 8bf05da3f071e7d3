"""Correction of sglang.fa3-tree-sinks.

Trees are attended to in two passes, over what is cached and over the draft tokens, and each kernel's LSE holds the sink. It is
left out of the first: a row of the second pass sees its own key at least, while the first has none where pages are larger than
a token and a request is shorter than its first page. FlashAttention says -inf of a row without keys, with sinks, too.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared import paged_kernel


def verifies_a_tree(target: Any, instance: Any, forward_batch: Any, sinks: Any = None) -> bool:
    return sinks is not None and forward_batch.forward_mode.is_target_verify() and _in_two_passes(instance)


def drafts_a_tree(target: Any, instance: Any, forward_batch: Any, sinks: Any = None) -> bool:
    return sinks is not None and forward_batch.spec_info is not None and _in_two_passes(instance)


def _in_two_passes(backend: Any) -> bool:
    return not backend.use_mla and paged_kernel.in_two_passes(backend)


def forward(call: Call, instance: Any) -> Any:
    """Returns out [tokens, heads * d]."""
    drafts = instance.forward_metadata_spec_decode_expand.page_table

    def once(launch: dict[str, Any]) -> bool:
        first = is_first_pass(launch, drafts)
        if first:
            del launch["sinks"]
        return first

    return paged_kernel.forward(call, instance, once)


def is_first_pass(launch: dict[str, Any], drafts: Any) -> bool:
    """Whether a launch is the pass over what is cached: one whose LSE is merged, and not over `drafts`, the draft tokens'
    table of pages."""
    return "sinks" in launch and launch.get("return_softmax_lse", False) and launch["page_table"] is not drafts
