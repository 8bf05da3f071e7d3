"""vllm.empty-context-chunks, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, SHARED_BATCH

from . import wrap

_COMMON = "vllm.v1.attention.backends.mla.common"
_MLA = "vllm.model_executor.layers.attention.mla_attention"
_RAGGED = "vllm.v1.attention.backends.mla.prefill.trtllm_ragged"
_MASK = "vllm.v1.attention.ops.triton_merge_attn_states"

FIX = Fix(
    id="vllm.empty-context-chunks",
    title="Wrong answers when requests of unequal cached context share a prefill (MLA)",
    symptom=(
        "Wrong answers from DeepSeek-type models when requests with cached context share a prefill batch with requests that "
        "have less of it, or none. No error, and nothing in the log."
    ),
    symptoms=(CACHED_PREFIX, SHARED_BATCH),
    cause=(
        "The TRT-LLM ragged kernel writes neither output nor LSE of a request without context in a chunk: the engine merges "
        "what an earlier launch left there. Up to 0.19.1 it zero-fills output and workspace before every chunk, which makes "
        "such rows neutral; PR 36540 dropped the fills and leaves out tokens without any context in the final merge alone."
    ),
    correction="Rows of requests without context in the chunk get output 0 and LSE -inf, in place, before the merge.",
    upstream=Upstream("vllm-project/vllm", pull=49294, issue=49334),
    hardware="Blackwell (TRT-LLM ragged MLA prefill: opt-in in 0.20, from 0.21.0 second to FlashAttention on SM100)",
    default=True,
    default_reason="silent wrong output; upstream corrects it in the same way from 0.26.0 on",
    targets=(
        Target(
            wrap.run_prefill_context_chunk,
            needed=wrap.has_empty_requests,
            paths=(
                f"{_COMMON}:MLACommonImpl._run_prefill_context_chunk_trtllm_ragged",
                f"{_MLA}:MLACommonImpl._run_prefill_context_chunk_trtllm_ragged",
                f"{_RAGGED}:TrtllmRaggedPrefillBackend.run_prefill_context_chunk",
            ),
        ),
    ),
    # The loops and their callers, what plans the chunks, and what later releases neutralise empty rows with
    witnesses=(
        f"{_COMMON}:MLACommonImpl._compute_prefill_context",
        f"{_COMMON}:MLACommonImpl._context_parallel_compute_prefill_context",
        f"{_COMMON}:MLACommonImpl._forward_prefill",
        f"{_COMMON}:MLACommonMetadataBuilder.build",
        f"{_MLA}:MLACommonImpl._compute_prefill_context",
        f"{_MLA}:MLACommonImpl._context_parallel_compute_prefill_context",
        f"{_MLA}:MLACommonImpl._forward_prefill",
        f"{_MLA}:MLACommonImpl.forward_mha",
        f"{_MLA}:MLACommonMetadataBuilder.build",
        f"{_MLA}:MLACommonBaseImpl._compute_prefill_context",
        f"{_MLA}:MLACommonBaseImpl._context_parallel_compute_prefill_context",
        f"{_MLA}:MLACommonBaseImpl.forward_mha",
        f"{_MLA}:build_mla_chunked_context_metadata",
        f"{_MLA}:plan_mla_context_chunks",
        f"{_MLA}:init_mla_context_partial",
        f"{_MLA}:neutralize_empty_context_partials",
        f"{_MLA}:accumulate_mla_context_chunk",
        f"{_RAGGED}:TrtllmRaggedPrefillBackend.__init__",
        f"{_RAGGED}:TrtllmRaggedPrefillBackend._get_workspace_buffer",
        f"{_MASK}:mask_empty_context",
        f"{_MASK}:mask_empty_context_kernel",
    ),
    cost=(
        "Nothing in a batch without empty chunks; else one kernel launch per chunk and layer, whose time grows with the empty "
        "rows alone."
    ),
    avoid=(
        "Start with `--attention-config.mla_prefill_backend FLASH_ATTN`; in 0.20 keep "
        "`use_trtllm_ragged_deepseek_prefill` off, its default."
    ),
    expect=(
        "On one replica, send a long prompt twice (the second time its prefix is cached) beside short fresh ones: stock, the "
        "answers change with the company they keep; fixed, each equals that of the prompt sent alone. Nothing else changes."
    ),
    look_does="its look keeps what it found on an object of the engine",
    hits=AllOf(Is("attention", "MLA"), Is("MLA prefill backend", "trtllm_ragged"), Is("cached prefix", ON)),
)
