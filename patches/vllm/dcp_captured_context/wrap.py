"""Corrections of vllm.dcp-captured-context: a graph holds attention to a context, and has its schedule at each replay.

Both look at the lengths on the host alone, which all ranks share: either all of them attend to a context, or none.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from attnfix.compat.fix import Call


def without_context(target: Any, instance: Any, common_attn_metadata: Any) -> bool:
    """Whether the builder would leave attention to a context out: no request has one, by the lengths on the host."""
    lens = common_attn_metadata.seq_lens_cpu_upper_bound
    if instance.dcp_world_size == 1 or lens is None:
        return False
    requests = common_attn_metadata.num_reqs
    return int((lens[:requests] - common_attn_metadata.query_start_loc_cpu[: requests + 1].diff()).max()) == 0


def build_for_cudagraph_capture(call: Call, instance: Any, common_attn_metadata: Any) -> Any:
    """Returns FlashAttentionMetadata for a capture, whose `max_dcp_context_kv_len` is above 0."""
    result = call(common_attn_metadata=with_context(instance, common_attn_metadata))
    call.corrected()
    return result


def may_replay_without_context(target: Any, instance: Any, common_attn_metadata: Any, fast_build: bool) -> bool:
    """Whether a graph may be replayed for this step that reads a schedule, which the builder would leave as it was.

    Drafts are built fast, and have none.
    """
    largest = instance.max_cudagraph_size or 0
    scheduled = instance.use_full_cuda_graph and instance.aot_schedule and common_attn_metadata.num_actual_tokens <= largest
    return scheduled and not fast_build and without_context(target, instance, common_attn_metadata)


def build(call: Call, instance: Any, common_attn_metadata: Any) -> Any:
    """Returns the engine's own FlashAttentionMetadata; the buffer that graphs read holds this step's schedule by then."""
    call(common_attn_metadata=with_context(instance, common_attn_metadata))
    result = call()
    call.corrected()
    return result


def with_context(builder: Any, common: Any) -> Any:
    """`common` with as much context on the host as gives each rank some of it. On the GPU, lengths stay as they are."""
    told, context = copy(common), builder.dcp_world_size * builder.cp_kv_cache_interleave_size
    told.seq_lens_cpu_upper_bound = common.seq_lens_cpu_upper_bound + context
    return told
