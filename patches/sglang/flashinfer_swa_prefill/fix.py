"""sglang.flashinfer-swa-prefill, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream, WorstCost
from attnfix.compat.symptoms import BACKEND, CACHED_PREFIX, LONG_PROMPT
from attnfix.patches.sglang.shared import heads_of_a_rank
from attnfix.patches.sglang.shared.window_layers import plans_for_windows

from . import wrap

_MODULE = "sglang.srt.layers.attention.flashinfer_backend"
_MODES = ("decode_or_idle", "draft_extend", "target_verify")
_GRAPHS = "sglang.srt.model_executor.runner_backend_utils.tc_piecewise_cuda_graph.context_manager"
_BACKEND, _UPDATER = f"{_MODULE}:FlashInferAttnBackend", f"{_MODULE}:FlashInferIndicesUpdaterPrefill"

FIX = Fix(
    id="sglang.flashinfer-swa-prefill",
    title="Worse answers to prompts that are longer than the window (FlashInfer)",
    symptom=(
        "Models with sliding-window layers (Gemma 2, Gemma 3) answer prompts longer than the window worse on FlashInfer than "
        "on Triton or fa3. Up to 0.5.20 that also holds for any prompt whose prefix is cached or that is prefilled in chunks."
    ),
    symptoms=(LONG_PROMPT, CACHED_PREFIX, BACKEND),
    cause=(
        "FlashInfer takes its kernel with the window's mask where the plan of a batch names a window. The ragged mode's plan "
        "never does, and its call for prompts without cached tokens does not either; up to 0.5.15.post1 the plan of the "
        "paged-only mode does not. Up to 0.5.20 the ragged mode also plans cached tokens together with new ones, whose KV is "
        "written later: full layers (up to 0.5.12.post1 window layers, too) attend to what others left in those slots."
    ),
    correction=(
        "A batch that would come out wrong runs in the engine's own paged-only mode, which writes the new tokens' KV first. Up "
        "to 0.5.15.post1 its plan gets the window, as upstream's has it from 0.5.16 on. Other batches stay as they are. Models "
        "with bidirectional layers or windows of several sizes, multi-item scoring, diffusion models and FP4 KV caches that "
        "are dequantised for prefill are left alone. So are, in 0.5.15 and 0.5.15.post1, full prefill graphs "
        "(--cuda-graph-backend-prefill full): another function plans them."
    ),
    upstream=Upstream("sgl-project/sglang", pull=34093, issue=33915, report="sglang-flashinfer-swa-prefill"),
    hardware="any GPU (--attention-backend flashinfer: the default on Ampere, Ada and consumer Blackwell)",
    default=True,
    default_reason="silent wrong output; proven with real kernels on an H200 (0.5.13 and 0.5.23)",
    targets=(
        Target(wrap.init_updater, needed=plans_for_windows, paths=(f"{_UPDATER}.__init__",)),
        Target(wrap.init_forward_metadata, needed=wrap.misses, paths=(f"{_BACKEND}.init_forward_metadata",), repeatable=True),
    ),
    # What plans, with which lengths, windows and masks, and what calls the wrappers in either mode
    witnesses=(
        f"{_UPDATER}.update_sliding_window",
        f"{_UPDATER}._build_swa_prefix_custom_mask",
        f"{_UPDATER}.call_begin_forward",
        f"{_BACKEND}.forward_extend",
        f"{_BACKEND}._get_wrapper_idx",
        f"{_BACKEND}._prepare_dequant_workspace_metadata_for_extend",
        f"{_MODULE}:FlashInferIndicesUpdaterDecode.update_sliding_window",
        *(f"{_MODULE}:{name}" for name in ("DecodeMetadata", "PrefillMetadata", "MultiItemScoringParams")),
        *(f"sglang.srt.model_executor.forward_batch_info:ForwardMode.is_{mode}" for mode in _MODES),
        "sglang.srt.compilation.piecewise_context_manager:is_in_piecewise_cuda_graph",
        f"{_GRAPHS}:is_in_tc_piecewise_cuda_graph",
        "sglang.srt.mem_cache.kv_index_translator:KVIndexTranslator.index_table_for_batch",
        "sglang.srt.layers.attention.utils:create_flashinfer_kv_indices_triton",
        "sglang.srt.layers.attention.triton_ops.kv_indices:create_flashinfer_kv_indices_triton",
        "sglang.kernels.ops.attention.kv_indices:create_flashinfer_kv_indices_triton",
        "sglang.srt.layers.radix_attention:RadixAttention.__init__",
        "sglang.srt.mem_cache.kv_index_translator:KVIndexTranslator.write_ids",
        "sglang.srt.mem_cache.kv_index_translator:KVIndexTranslator.sliding_window_write_loc_for",
        "sglang.srt.mem_cache.swa_memory_pool:SWAKVPool.translate_loc_from_full_to_swa",
        *heads_of_a_rank.WITNESSES,
    ),
    remove_when=(
        "no sglang with the bug serves such a model on FlashInfer. From 0.5.16 on SGLANG_FLASHINFER_USE_PAGED=1 has the same "
        "effect without attnfix; 0.5.23 still needs one of the two"
    ),
    cost=(
        "About a microsecond per batch. A corrected batch attends in one call instead of up to two and a merge. With an "
        "FP8 KV cache new tokens are read back from the cache, as decode reads them. A start whose FlashInfer cache is cold "
        "compiles the kernel with the window's mask, for 480 s at most. Seen on one H200 with sglang.flashinfer-soft-cap and "
        "drafts: 359 s, and no prompt waited; stock: 201 s, and its first long prompt waited 123 s for the compiler."
    ),
    worst_cost=WorstCost(
        0.968,
        0.951,
        0.985,
        "every prompt is new and longer than the window, with sglang.flashinfer-soft-cap",
        "h200-sglang-0.5.23",
    ),
    avoid=(
        "From 0.5.16 set `SGLANG_FLASHINFER_USE_PAGED=1`; earlier `--prefill-attention-backend triton "
        "--decode-attention-backend flashinfer`. Prefill slows. On Hopper `--attention-backend fa3`, below 0.5.7 beside "
        "`--disable-hybrid-swa-memory`, is right, too."
    ),
    expect=(
        "From 0.5.16 on, first try SGLANG_FLASHINFER_USE_PAGED=1: it alone cures this (seen on 0.5.23). Else, on one replica, "
        "compare answers to prompts longer than the window, and to a prompt sent twice, with those of --attention-backend "
        "triton: they differ with stock, and agree up to rounding with the fix. Short prompts keep their bits."
    ),
    look_does="its look reads what a correction stored",
    hits=AllOf(
        Is("prefill backend", "flashinfer"),
        Is("sliding-window layers", ON),
        Is("prefill with the window", "missed"),
    ),
)
