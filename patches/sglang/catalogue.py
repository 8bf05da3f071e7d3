"""Every fix of sglang, in the order in which the corrections of one target run, from the inside out: the first of them calls
the engine. To add one: write its folder, add its name here.

Rows without KV are neutralised as the kernel returned them, before the base of the LSE is converted (-inf stays -inf). The
kernels that plan a window ask for the soft cap, which is learnt before them.
"""

from importlib import import_module

from attnfix.compat.fix import Fix

_FOLDERS = (
    "zero_kv_rows",
    "lse_log_base",
    "stale_prefill_fallback",
    "uniform_replay_stride_mla",
    "uniform_replay_stride_triton",
    "triton_draft_double_count",
    "mha_draft_extend_routing",
    "skip_seq_lens_sync",
    "draft_kv_indices",
    "draft_kv_context_limit",
    "triton_swa_deterministic",
    "fa3_swa_topk",
    "encoder_decode_lengths",
    "hybrid_chunk_metadata",
    "fa3_scheduler_metadata",
    "fa3_context_limit",
    "flashinfer_fp8_prefix",
    "flashinfer_soft_cap",
    "flashinfer_swa_prefill",
    "mamba2_initial_state",
    "mamba2_h_grid",
    "mamba2_prefill_graph",
    "mamba2_track_tail",
    "mamba_track_boundary",
    "eagle_swa_verify",
    "fa3_cross_lengths",
    "trtllm_mla_bf16_scale",
    "trtllm_mha_kv_scales",
    "xqa_verify_mask",
    "draft_row_spill",
    "triton_window_decode",
    "mla_draft_lengths",
    "fa3_tree_sinks",
    "fa3_mla_tree_pages",
    "triton_tree_window",
    "fa3_encoder_replay",
    "kv_scales_file",
    "mamba_float16_conv",
    "mamba_empty_node",
    "qwen35_mrope",
    "mixed_chunk_states",
    "lora_prefix_key",
    "gdn_page_grid",
    "gated_split_views",
    "fa3_dp_padding",
    "trtllm_mha_window_pages",
    "trtllm_mha_draft_pool",
    "encoder_prefix_cache",
    "yarn_settings",
    "cohere2_rope",
    "fused_norm_yarn",
    "mamba2_tensor_parallel",
    "dsa_index_rope",
    "short_chunk_hang",
    "window_recovery",
    "mamba_flush",
    "preempted_twice_freed",
    "vision_padded_positions",
    "gemma3_mixed_images",
    "gemma3_text_bidirectional",
    "mrope_pairs",
    "mrope_retraction",
    "lora_captured_segments",
)

FIXES: tuple[Fix, ...] = tuple(import_module(f".{folder}.fix", __package__).FIX for folder in _FOLDERS)
