"""Correction of vllm.dcp-fa2-split.

Who reads the counts that are corrected, in 0.26.0-0.33.0: `_forward_with_dcp`, and it only on FlashAttention 2. Rows without a
context may be among those that are counted then, with a length of 0. Of such a row FlashAttention 2 returns an output of 0 and
an LSE of +inf, which both combines of the ranks and the merge take for -inf. Such rows are there stock, too: a rank may hold
nothing of a short context, and a new prompt of one token counts as a decode.
"""

from __future__ import annotations

from typing import Any


def on_flash_attention_2(target: Any, instance: Any, common_attn_metadata: Any) -> bool:
    """Whether this builder's layers may split the step. Other versions of the kernel take all of a step at once."""
    if instance.dcp_world_size == 1 or common_attn_metadata.max_query_len <= 1:
        return False
    layers = instance.vllm_config.compilation_config.static_forward_context
    return getattr(layers[instance.layer_names[0]].impl, "vllm_flash_attn_version", None) == 2


def build(call: Any, instance: Any, common_attn_metadata: Any) -> Any:
    """Returns FlashAttentionMetadata, whose counts cover the last request with a context.

    All is decided from `query_start_loc_cpu`, int32 [requests + 1], and `seq_lens_cpu_upper_bound`, int32 [requests], on the
    host. They are the same on all ranks. New prompts behind the last context stay out, as in a batch in order.
    """
    metadata = call()
    lens, starts = common_attn_metadata.seq_lens_cpu_upper_bound, common_attn_metadata.query_start_loc_cpu
    if lens is None:  # all are counted
        return metadata
    covered, decodes = with_context(starts, lens), metadata.num_decode_reqs
    if covered > decodes + metadata.num_prefill_reqs:
        metadata.num_prefill_reqs = covered - decodes
        metadata.num_prefill_tokens = int(starts[covered]) - metadata.num_decode_tokens
        call.corrected()
    return metadata


def with_context(starts: Any, lens: Any) -> int:
    """How many requests there are up to the last that has new tokens, and tokens before them. Padded ones have no new ones."""
    new = starts.diff()
    found = ((new > 0) & (lens[: len(new)] > new)).nonzero()
    return int(found[-1]) + 1 if len(found) else 0
