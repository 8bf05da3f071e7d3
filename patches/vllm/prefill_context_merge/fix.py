"""vllm.prefill-context-merge, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import SLOWER, Fix, Target, Upstream
from attnfix.compat.symptoms import SLOW
from attnfix.patches.vllm.shared.context_path import BUILDING, COMPUTING

from . import wrap

_COMMON = "vllm.v1.attention.backends.mla.common"
_MLA = "vllm.model_executor.layers.attention.mla_attention"
_RAGGED = "vllm.v1.attention.backends.mla.prefill.trtllm_ragged"
_MERGE = "vllm.v1.attention.ops.merge_attn_states"
_TRITON = "vllm.v1.attention.ops.triton_merge_attn_states"

FIX = Fix(
    id="vllm.prefill-context-merge",
    title="Slower prefill of fresh prompts beside cached ones (MLA)",
    symptom=(
        "Prefill takes longer than necessary where fresh prompts share a batch with requests that have cached context. A "
        "prefix is read and weighed for tokens that have none. Results are right as long as every backend neutralises those "
        "rows."
    ),
    symptoms=(SLOW,),
    cause="The final merge takes a prefix for every token; that of tokens without context is whatever a kernel left there.",
    correction="Tokens without context copy the suffix; their prefix is not read. Only where requests with context come first.",
    upstream=Upstream("vllm-project/vllm", pull=36540),
    hardware="NVIDIA GPUs with MLA prefill; the undefined rows are those of Blackwell's TRT-LLM ragged kernel",
    default_reason="performance: the engine's zero fills keep its own merge right; upstream does the same since 0.20.0",
    targets=(
        Target(
            wrap.build,
            paths=(f"{_COMMON}:MLACommonMetadataBuilder.build", f"{_MLA}:MLACommonMetadataBuilder.build"),
        ),
        Target(
            wrap.compute_prefill_context,
            paths=(f"{_COMMON}:MLACommonImpl._compute_prefill_context", f"{_MLA}:MLACommonImpl._compute_prefill_context"),
        ),
        Target(
            wrap.compute_prefill_context,
            paths=(
                f"{_COMMON}:MLACommonImpl._context_parallel_compute_prefill_context",
                f"{_MLA}:MLACommonImpl._context_parallel_compute_prefill_context",
            ),
        ),
        Target(
            wrap.merge_attn_states,
            needed=wrap.has_a_count,
            paths=("vllm.attention.ops.merge_attn_states:merge_attn_states", f"{_MERGE}:merge_attn_states"),
        ),
    ),
    # Their callers, what runs a chunk, and what later releases plan, count and neutralise with
    witnesses=(
        "vllm._custom_ops:merge_attn_states",
        f"{_COMMON}:MLACommonImpl._forward_prefill",
        f"{_COMMON}:MLACommonImpl._run_prefill_context_chunk_trtllm_ragged",
        f"{_COMMON}:MLACommonPrefillMetadata",
        f"{_COMMON}:MLACommonMetadata",
        f"{_MLA}:MLACommonImpl._forward_prefill",
        f"{_MLA}:MLACommonImpl.forward_mha",
        f"{_MLA}:MLACommonImpl._run_prefill_context_chunk_trtllm_ragged",
        f"{_MLA}:MLACommonPrefillMetadata",
        f"{_MLA}:MLACommonMetadata",
        f"{_MLA}:MLACommonBaseImpl._compute_prefill_context",
        f"{_MLA}:MLACommonBaseImpl._context_parallel_compute_prefill_context",
        f"{_MLA}:MLACommonBaseImpl.forward_mha",
        f"{_MLA}:build_mla_chunked_context_metadata",
        f"{_MLA}:plan_mla_context_chunks",
        f"{_MLA}:init_mla_context_partial",
        f"{_MLA}:neutralize_empty_context_partials",
        f"{_MLA}:accumulate_mla_context_chunk",
        f"{_RAGGED}:TrtllmRaggedPrefillBackend.run_prefill_context_chunk",
        f"{_TRITON}:mask_empty_context",
        f"{_TRITON}:mask_empty_context_kernel",
        "vllm.v1.attention.backends.utils:CommonAttentionMetadata.seq_lens_cpu",
        "vllm.v1.attention.backend:CommonAttentionMetadata.seq_lens_cpu",
        "vllm.v1.attention.backend:CommonAttentionMetadata.compute_num_computed_tokens",
        "vllm.platforms.interface:Platform.fp8_dtype",
        *BUILDING,
        *COMPUTING,
    ),
    cost=(
        "About 10 µs of host time per prefill batch with context. In a batch with and without context our merge is launched, "
        "from Python, instead of the engine's: about 20 µs of host time per layer against 7. On an H200, half of the tokens "
        "without context: 199 µs instead of 233 at 8192 tokens x 128 heads, 11.7 instead of 13.7 at 2048 x 16. Equal bits in "
        "184 million elements compared with the op of vLLM 0.25.1."
    ),
    avoid=(
        "Nothing short of 0.20.0 does: `--no-enable-prefix-caching` ends the merges, but computing prefixes again takes longer."
    ),
    expect=(
        "No shift: on one replica, answers to fresh prompts sent beside a long prompt whose prefix is cached stay as they are, "
        "bit for bit. `attnfix status` counts the merges and the tokens that read no prefix."
    ),
    harm=SLOWER,
    hits=AllOf(Is("attention", "MLA"), Is("GPU", "NVIDIA"), Is("cached prefix", ON)),
)
