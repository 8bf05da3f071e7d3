"""Every fix of sglang, in the order in which the corrections of one target run, from the inside out: the first of them calls
the engine. To add one: write its folder, add it here.

Rows without KV are neutralised as the kernel returned them, before the base of the LSE is converted (-inf stays -inf).
"""

from . import (
    draft_kv_indices,
    encoder_decode_lengths,
    fa3_scheduler_metadata,
    fa3_swa_topk,
    hybrid_chunk_metadata,
    lse_log_base,
    mha_draft_extend_routing,
    skip_seq_lens_sync,
    stale_prefill_fallback,
    triton_draft_double_count,
    triton_swa_deterministic,
    uniform_replay_stride_mla,
    uniform_replay_stride_triton,
    zero_kv_rows,
)

FIXES = (
    zero_kv_rows.FIX,
    lse_log_base.FIX,
    stale_prefill_fallback.FIX,
    uniform_replay_stride_mla.FIX,
    uniform_replay_stride_triton.FIX,
    triton_draft_double_count.FIX,
    mha_draft_extend_routing.FIX,
    skip_seq_lens_sync.FIX,
    draft_kv_indices.FIX,
    triton_swa_deterministic.FIX,
    fa3_swa_topk.FIX,
    encoder_decode_lengths.FIX,
    hybrid_chunk_metadata.FIX,
    fa3_scheduler_metadata.FIX,
)
