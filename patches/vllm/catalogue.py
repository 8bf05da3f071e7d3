"""Every fix of vLLM, in the order in which the corrections of one target run, from the inside out: the first of them calls
the engine. To add one: write its folder, add its name here.

Rows without KV are neutralised as the kernel returned them, before the base of the LSE is converted (-inf stays -inf). On a
context chunk of MLA prefill, skip_context_zero_fill runs the engine's own code with another name bound and is the first.
"""

from importlib import import_module

from attnfix.compat.fix import Fix

_FOLDERS = (
    "skip_context_zero_fill",
    "empty_context_chunks",
    "lse_log_base",
    "quantized_mla_context",  # runs the engine's own loop: before any other correction of it
    "mla_context_order",
    "both_empty_merge_cuda",
    "both_empty_merge_triton",
    "dcp_empty_shard",
    "dcp_page_counts",
    "dcp_decode_lse_base",
    "padded_v_merge",
    "prefill_context_merge",
    "kv_scale_float",
    "flashmla_fp8_graph",
    "fa3_dcp_graph",
    "gdn_launch_assert",
    "gdn_uniform_decode",
    "dcp_spec_graph",
    "fa3_cascade",
    "dflash_aot_schedule",
    "int8_mla_context",
    "mamba_prefix_cache",
    "accepted_counts_race",
    "mamba_state_column",
    "mamba2_padded_tail",
    "padded_one_token_prompt",
    "mamba_decode_order",
    "dummy_draft_kv",
    "skipped_layer_scales",
    "dcp_fa2_split",
    "mamba_stale_checkpoint",
    "flashinfer_q_scale",
    "lora_prefix_key",
    "dcp_captured_context",
    "rocm_mm_prefix",
    "undrafted_hybrid_row",
    "pooling_chunk_race",
    "draft_rotary_table",
    "longrope_switch",
    "gpt_oss_rotary",
    "mrope_draft_slots",
    "dsv32_indexer_rotary",
    "swa_early_free",
    "mixed_precision_stale_bits",
    "fa2_cascade",
    "dp_dummy_states",
    "stale_draft_placeholders",
    "image_split",
    "dots_ocr_ranks",
    "qwen2_vision_ranks",
    "hybrid_stale_bits",
    "ministral3_query_scale",
    "yarn_attention_factor",
    "dynamic_ntk_base",
    "gdn_token_order",
    "mamba_draft_count_assert",
    "mamba_chunk_blocks",
    "partial_hit_assert",
    "dp_draft_hang",
    "encoder_decoder_leak",
    "swa_admission_crash",
    "session_stale_hash",
)

FIXES: tuple[Fix, ...] = tuple(import_module(f".{folder}.fix", __package__).FIX for folder in _FOLDERS)
