"""Correction of sglang.fa3-mla-tree-pages.

A tree is verified in two passes, over what is cached and over the draft tokens. The table of the second lists slots, so the
latents are shown to it as pages of one slot: views, as upstream does for heads of their own. The first has a table of pages.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared import paged_kernel


def verifies_a_tree(target: Any, instance: Any, forward_batch: Any) -> bool:
    """FlashAttention 4 is left alone: how its kernel for latents takes pages of one slot was not read."""
    return (
        instance.use_mla
        and instance.page_size > 1
        and forward_batch.forward_mode.is_target_verify()
        and instance.fa_impl_ver == 3
        and paged_kernel.in_two_passes(instance)
    )


def forward_extend(call: Call, instance: Any) -> Any:
    """Returns out [tokens, heads * d]."""
    drafts = instance.forward_metadata_spec_decode_expand.page_table

    def by_slots(launch: dict[str, Any]) -> bool:
        second = is_second_pass(launch, drafts)
        if second:
            launch["k_cache"], launch["v_cache"] = slots(launch["k_cache"]), slots(launch["v_cache"])
        return second

    return paged_kernel.forward(call, instance, by_slots)


def is_second_pass(launch: dict[str, Any], drafts: Any) -> bool:
    """Whether a launch is the pass over the draft tokens: the one that is given their table of slots, `drafts`."""
    return launch["page_table"] is drafts


def slots(cache: Any) -> Any:
    """A cache [pages, page size, heads, d] as [slots, 1, heads, d], without a copy. The kernel reads both strides, so either is
    a slot's: `view` would make up the second."""
    pages, size, *row = cache.shape
    _, slot, *rest = cache.stride()
    return cache.as_strided((pages * size, 1, *row), (slot, slot, *rest))
