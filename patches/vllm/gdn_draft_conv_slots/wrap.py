"""Correction of vllm.gdn-draft-conv-slots."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def may_prefill_several(target: Any, instance: Any, common_attn_metadata: Any) -> bool:
    """Whether a server with drafts has several requests in a step, of which one has several tokens."""
    batch = common_attn_metadata
    return instance.use_spec_decode and batch.num_reqs > 1 and batch.max_query_len > 1


def build(call: Call, instance: Any) -> Any:
    """What the engine built, with slots without gaps: only then are all of its kernels right.

    Slots of a step with verified drafts are picked out, which copies them; those of a graph's decodes have memory of their own.
    """
    metadata = call()
    slots = metadata.non_spec_state_indices_tensor
    if metadata.num_prefills and slots.stride(0) > 1:
        metadata.non_spec_state_indices_tensor = dense(slots)
        call.corrected(len(slots))
    return metadata


def dense(slots: Any) -> Any:
    """int32 [requests], in memory without gaps."""
    return slots.contiguous()
