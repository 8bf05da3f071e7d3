"""Every fix of vLLM, in the order in which the corrections of one target run, from the inside out: the first of them calls
the engine. To add one: write its folder, add it here.

Rows without KV are neutralised as the kernel returned them, before the base of the LSE is converted (-inf stays -inf). On a
context chunk of MLA prefill, skip_context_zero_fill runs the engine's own code with another name bound and is the first.
"""

from . import (
    both_empty_merge_cuda,
    both_empty_merge_triton,
    dcp_decode_lse_base,
    dcp_empty_shard,
    dcp_page_counts,
    empty_context_chunks,
    fa3_dcp_graph,
    flashmla_fp8_graph,
    gdn_uniform_decode,
    kv_scale_float,
    lse_log_base,
    mla_context_order,
    padded_v_merge,
    prefill_context_merge,
    quantized_mla_context,
    skip_context_zero_fill,
)

FIXES = (
    skip_context_zero_fill.FIX,
    empty_context_chunks.FIX,
    lse_log_base.FIX,
    quantized_mla_context.FIX,  # runs the engine's own loop: before any other correction of it
    mla_context_order.FIX,
    both_empty_merge_cuda.FIX,
    both_empty_merge_triton.FIX,
    dcp_empty_shard.FIX,
    dcp_page_counts.FIX,
    dcp_decode_lse_base.FIX,
    padded_v_merge.FIX,
    prefill_context_merge.FIX,
    kv_scale_float.FIX,
    flashmla_fp8_graph.FIX,
    fa3_dcp_graph.FIX,
    gdn_uniform_decode.FIX,
)
