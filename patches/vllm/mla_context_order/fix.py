"""vllm.mla-context-order, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, LONG_PROMPT, SHARED_BATCH
from attnfix.patches.vllm.shared.context_path import BUILDING, COMPUTING

from . import wrap

_COMMON = "vllm.v1.attention.backends.mla.common"
_MLA = "vllm.model_executor.layers.attention.mla_attention"
_SPARSE = "vllm.model_executor.layers.attention.sparse_mla_attention"
_PREFILL = "vllm.v1.attention.backends.mla.prefill"
_MERGE = "vllm.v1.attention.ops.merge_attn_states"

FIX = Fix(
    id="vllm.mla-context-order",
    title="A prompt forgets its cached context beside a shorter fresh prompt (MLA, Model Runner V2)",
    symptom=(
        "Wrong answers from DeepSeek-type models: a long prompt forgets all that it has in the cache when a shorter fresh "
        "prompt shares its step. The prompt is in its second or later part, or its prefix is cached. No error, and nothing in "
        "the log."
    ),
    symptoms=(CACHED_PREFIX, LONG_PROMPT, SHARED_BATCH),
    cause=(
        "Since 0.20.0 (PR 36540) the final merge of MLA prefill is told how many leading tokens have context, which takes for "
        "granted that requests with context come first. Model Runner V2 orders a batch by number of new tokens alone: tokens "
        "behind that count keep their new part and drop their context."
    ),
    correction=(
        "Where requests with context do not come first, every token merges its context; up to 0.25.1, and in sparse MLA of "
        "0.27, that of requests without any is set to output 0 and LSE -inf before."
    ),
    # PR 50613 plans chunks per request, and the count went with the code that used it; no report of the fault is known.
    upstream=Upstream("vllm-project/vllm", report="vllm-mla-context-order"),
    hardware=(
        "any GPU, every MLA prefill backend (Model Runner V2: default for DeepSeek-V2 models in 0.24.0-0.27.1, for "
        "Longcat-Flash-Ngram from 0.26.0 and Kimi-K3 in 0.27; else with VLLM_USE_V2_MODEL_RUNNER=1)"
    ),
    default=True,
    default_reason="silent wrong output; upstream removed its cause in 0.28.0",
    targets=(
        Target(
            wrap.build,
            paths=(f"{_MLA}:build_mla_chunked_context_metadata", f"{_MLA}:MLACommonMetadataBuilder.build"),
        ),
        Target(
            wrap.compute_prefill_context,
            needed=wrap.merges_requests_without_context,
            paths=(f"{_MLA}:MLACommonBaseImpl._compute_prefill_context", f"{_MLA}:MLACommonImpl._compute_prefill_context"),
        ),
        Target(
            wrap.compute_prefill_context,
            needed=wrap.merges_requests_without_context,
            paths=(
                f"{_MLA}:MLACommonBaseImpl._context_parallel_compute_prefill_context",
                f"{_MLA}:MLACommonImpl._context_parallel_compute_prefill_context",
            ),
        ),
        Target(
            wrap.compute_context_mha,
            needed=wrap.attends_to_requests_without_context,
            paths=(f"{_SPARSE}:SparseMLACommonImpl._compute_context_mha",),
        ),
    ),
    independent=True,  # the last of them is loaded by servers of sparse MLA alone; the others lie in one module
    # What hands the count on and what obeys it. The runner's order is none of them: in an engine that orders its batches by
    # context, nothing is corrected.
    witnesses=(
        f"{_COMMON}:MLACommonMetadataBuilder.build",
        f"{_MLA}:MLACommonPrefillMetadata",
        f"{_MLA}:MLACommonImpl.forward_mha",
        f"{_MLA}:MLACommonBaseImpl.forward_mha",
        f"{_SPARSE}:SparseMLACommonImpl.forward_mha",
        f"{_SPARSE}:SparseMLACommonImpl._run_masked_mha",
        f"{_MERGE}:merge_attn_states",
        "vllm.v1.attention.ops.triton_merge_attn_states:mask_empty_context",
        *BUILDING,
        *COMPUTING,
        f"{_MLA}:MLACommonMetadata",
        f"{_MLA}:MLACommonImpl._run_prefill_context_chunk_fa",
        f"{_MLA}:MLACommonImpl._run_prefill_context_chunk_trtllm_ragged",
        f"{_PREFILL}.base:MLAPrefillBackend.prepare_metadata",
        f"{_PREFILL}.flash_attn:FlashAttnPrefillBackend.run_prefill_context_chunk",
        f"{_PREFILL}.trtllm_ragged:TrtllmRaggedPrefillBackend.prepare_metadata",
        f"{_PREFILL}.trtllm_ragged:TrtllmRaggedPrefillBackend.run_prefill_context_chunk",
        "vllm.platforms.interface:Platform.fp8_dtype",
    ),
    cost=(
        "A few µs of host time per prefill batch with context. In a batch whose order is wrong, tokens without context are "
        "merged, too, and up to 0.25.1 one kernel is launched per layer, whose time grows with their rows alone."
    ),
    avoid=(
        "Set `VLLM_USE_V2_MODEL_RUNNER=0`: the V1 model runner puts requests with context first; LongCat-Flash-Ngram "
        "then refuses to start."
    ),
    expect=(
        "On one replica, send a long prompt (longer than max_num_batched_tokens) beside short fresh ones and compare its log "
        "probabilities with those of the prompt sent alone: stock they differ, fixed they agree up to rounding. Nothing else "
        "changes."
    ),
    hits=AllOf(Is("attention", "MLA"), Is("model runner", "V2"), Is("cached prefix", ON)),
)
