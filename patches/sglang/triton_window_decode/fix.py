"""sglang.triton-window-decode, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream, WorstCost
from attnfix.compat.symptoms import CACHED_PREFIX, LONG_PROMPT

from . import wrap

_MODULE = "sglang.srt.layers.attention.triton_backend"
_BACKEND = f"{_MODULE}:TritonAttnBackend"
_GRAPHS = (
    "init_forward_metadata_out_graph", "apply_cuda_graph_metadata", "update_decode_kv_buffers",
    "build_cuda_graph_forward_metadata", "translate_cuda_graph_shared_pool_locs", "fill_kv_indptr_and_indices",
    "fill_cuda_graph_swa_out_cache_loc", "fill_cuda_graph_write_locs",
)  # fmt: skip
_INDICES = (
    "sglang.srt.layers.attention.utils", "sglang.srt.layers.attention.triton_ops.kv_indices",
    "sglang.kernels.ops.kvcache.kv_indices", "sglang.kernels.ops.attention.kv_indices",
)  # fmt: skip
_TRANSLATOR = (
    "pack_read_stream", "index_table_for_batch", "make_capture_tables", "sliding_window_write_loc_for", "write_ids",
    "window_kv_kind",
)  # fmt: skip
_POOLS = (
    "memory_pool:MHATokenToKVPool.get_value_buffer", "memory_pool:SWAKVPool.get_value_buffer",
    "swa_memory_pool:SWAKVPool.get_value_buffer", "swa_memory_pool:SWAKVPool.translate_loc_from_full_to_swa",
)  # fmt: skip
_MODES = "decode_or_idle", "draft_extend", "target_verify"
#: What frees the KV behind the window in a pool of its own: the token that decode loses is still there
_FREED = (
    "managers.schedule_batch:ScheduleBatch.maybe_evict_swa", "managers.schedule_batch:ScheduleBatch._evict_swa",
    "mem_cache.base_prefix_cache:BasePrefixCache.evict_sliding_windows", "mem_cache.chunk_cache:SWAChunkCache.evict_swa",
    "mem_cache.common:free_swa_out_of_window_slots",
)  # fmt: skip
#: What `__init__` asks
_ASKED = "decode_num_tokens_per_req", "hybrid_gdn_config", "is_hybrid_gdn", "kimi_linear_config", "linear_attn_model_spec"
_SURROUNDINGS = (
    *(f"configs.model_config:ModelConfig.get_{name}" for name in ("num_kv_heads", "max_num_attention_heads")),
    *(
        f"configs.hybrid_arch:{name}"
        for name in ("hybrid_gdn_config", "kimi_linear_config", "linear_attn_model_spec", "mambaish_config")
    ),
    "layers.attention.verify_mask:maybe_create_verify_mask",
    "layers.dp_attention:get_attention_tp_size",
    "model_executor.cuda_graph_config:check_cuda_graph_backend",
    "model_executor.cuda_graph_config:cuda_graph_fully_disabled",
    *(f"model_executor.model_runner:ModelRunner.{name}" for name in _ASKED),
    *(f"runtime_context:ParallelContext.attn_{name}" for name in ("dcp_rank", "dcp_size", "tp_size")),
    *(f"runtime_context:get_{name}" for name in ("exec", "parallel", "spec")),
    "runtime_context:_install_derived_widths",
    "runtime_context:_install_parallel_properties",
    *(f"{module}:{name}" for module in ("utils", "utils.common") for name in ("get_bool_env_var", "get_device_core_count")),
)

FIX = Fix(
    id="sglang.triton-window-decode",
    title="Slightly worse answers beyond the window: Triton loses its oldest token",
    symptom=(
        "With --attention-backend triton, Gemma, gpt-oss and other models with sliding-window layers answer a little worse "
        "once a request is longer than the window. The same text as a prompt gets other probabilities. No error."
    ),
    symptoms=(LONG_PROMPT, CACHED_PREFIX),
    cause=(
        "The engine keeps the window without the token itself. Prefill and verification list the tokens before the new ones, "
        "and are right. Decode lists as many with the new one among them: each step of each window layer misses the oldest."
    ),
    correction=(
        "Decode steps list one token more, and the buffer of CUDA graphs has room for it. Models that give the engine their "
        "whole window, models with windows of several sizes, and draft models are left alone."
    ),
    upstream=Upstream("sgl-project/sglang", pull=32087, issue=34354, report="sglang-triton-window-decode"),
    hardware="any GPU (--attention-backend triton)",
    default=True,
    default_reason="silent wrong output; proven with real kernels on an H100 (0.5.23)",
    targets=(
        Target(wrap.init_backend, paths=(f"{_BACKEND}.__init__",)),
        Target(wrap.init_cuda_graph_state, needed=wrap.sizes_for_decode, paths=(f"{_BACKEND}.init_cuda_graph_state",)),
        Target(wrap.init_forward_metadata, needed=wrap.decodes, paths=(f"{_BACKEND}.init_forward_metadata",)),
        Target(
            wrap.replay,
            needed=wrap.replays_decode,
            paths=(
                f"{_BACKEND}.init_forward_metadata_out_graph",
                f"{_BACKEND}.init_forward_metadata_replay_cuda_graph",
            ),
        ),
    ),
    # What lays out decode in graphs, lists the window's slots, attends to them; and what the targets call beside that
    witnesses=(
        f"{_BACKEND}.init_forward_metadata_capture_cuda_graph",
        *(f"{_BACKEND}._{name}" for name in _GRAPHS),
        f"{_BACKEND}.get_num_kv_splits",
        f"{_BACKEND}.forward_decode",
        f"{_MODULE}:ForwardMetadata",
        f"{_MODULE}:_should_use_verify_shared_kv",
        f"{_MODULE}:update_sliding_window_buffer",
        f"{_MODULE}:update_sliding_window_buffer_cuda_graph",
        "sglang.srt.models.gemma2:get_attention_sliding_window_size",
        "sglang.srt.layers.radix_attention:RadixAttention.__init__",
        *(f"{module}:create_flashinfer_kv_indices_triton" for module in _INDICES),
        *(f"sglang.srt.mem_cache.kv_index_translator:KVIndexTranslator.{name}" for name in _TRANSLATOR),
        *(f"sglang.srt.mem_cache.{pool}" for pool in _POOLS),
        *(f"sglang.srt.model_executor.forward_batch_info:ForwardMode.is_{name}" for name in _MODES),
        *(f"sglang.srt.{name}" for name in (*_FREED, *_SURROUNDINGS)),
        "sglang.kernels.ops.attention.decode_attention:_lean_decode_launch_params",
        "sglang.kernels.ops.attention.extend_attention:_get_block_sizes_for_extend_attention",
    ),
    remove_when="a release of sglang is served whose decode lists the whole window: attnfix then sees it and does nothing",
    cost=("7 µs of host time per decode step (measured), no launch. CUDA graphs: 8 bytes for each token of the largest batch."),
    worst_cost=WorstCost(0.986, 0.952, 1.022, "every decode is behind a prompt longer than the window", "h100-sglang-0.5.23"),
    avoid=(
        "Set `--attention-backend fa3` on Hopper, below 0.5.7 beside `--disable-hybrid-swa-memory`: decode reads whole windows."
        " Elsewhere, for Gemma 2 and 3, set `--prefill-attention-backend triton --decode-attention-backend flashinfer`."
    ),
    expect=(
        "On one replica, `attnfix probe`, relation `next turn`: stock, answers move once decode has passed the window; with "
        "the fix they stay within rounding, as on other backends."
    ),
    hits=AllOf(Is("decode backend", "triton"), Is("speculative decoding", OFF), Is("window of the runner", "a token short")),
)
