"""Every fix, in the order in which the corrections of one target run, from the inside out: the first of them calls the engine.
To add one: write its folder, add one line here.

Rows without KV are neutralised as the kernel returned them, before the base of the LSE is converted (-inf stays -inf). On a
context chunk of vLLM's MLA prefill, skip_context_zero_fill runs the engine's own code with another name bound and is the first.
"""

from attnfix.patches.sglang import (
    draft_kv_indices,
    encoder_decode_lengths,
    fa3_scheduler_metadata,
    fa3_swa_topk,
    hybrid_chunk_metadata,
    mha_draft_extend_routing,
    skip_seq_lens_sync,
    stale_prefill_fallback,
    triton_draft_double_count,
    triton_swa_deterministic,
    uniform_replay_stride_mla,
    uniform_replay_stride_triton,
    zero_kv_rows,
)
from attnfix.patches.sglang import lse_log_base as sglang_lse_log_base
from attnfix.patches.vllm import (
    both_empty_merge_cuda,
    both_empty_merge_triton,
    dcp_empty_shard,
    dcp_page_counts,
    empty_context_chunks,
    fa3_dcp_graph,
    flashmla_fp8_graph,
    gdn_uniform_decode,
    kv_scale_float,
    mla_context_order,
    padded_v_merge,
    prefill_context_merge,
    quantized_mla_context,
    skip_context_zero_fill,
)
from attnfix.patches.vllm import lse_log_base as vllm_lse_log_base

FIXES = (
    zero_kv_rows.FIX,
    sglang_lse_log_base.FIX,
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
    skip_context_zero_fill.FIX,
    empty_context_chunks.FIX,
    vllm_lse_log_base.FIX,
    quantized_mla_context.FIX,  # runs the engine's own loop: before any other correction of it
    mla_context_order.FIX,
    both_empty_merge_cuda.FIX,
    both_empty_merge_triton.FIX,
    dcp_empty_shard.FIX,
    dcp_page_counts.FIX,
    padded_v_merge.FIX,
    prefill_context_merge.FIX,
    kv_scale_float.FIX,
    flashmla_fp8_graph.FIX,
    fa3_dcp_graph.FIX,
    gdn_uniform_decode.FIX,
)

BY_ID = {fix.id: fix for fix in FIXES}
