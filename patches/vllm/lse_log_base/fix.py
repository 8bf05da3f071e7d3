"""vllm.lse-log-base, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, LONG_PROMPT, PARALLEL

from ..shared import dcp_lse_base
from . import wrap

_COMMON = "vllm.v1.attention.backends.mla.common"
_MLA = "vllm.model_executor.layers.attention.mla_attention"
_PREFILL = "vllm.v1.attention.backends.mla.prefill"
_FLASHINFER = "vllm.v1.attention.backends.flashinfer"
_IMPL = f"{_COMMON}:MLACommonImpl", f"{_MLA}:MLACommonImpl", f"{_MLA}:MLACommonBaseImpl"
_SET_UP = (
    "flashinfer:FlashInferPrefillBackend.__init__",
    "flashinfer:FlashInferPrefillBackend.prepare_metadata",
    "trtllm_ragged:TrtllmRaggedPrefillBackend.__init__",
    "trtllm_ragged:TrtllmRaggedPrefillBackend.prepare_metadata",
)
_PATH = "_compute_prefill_context", "_context_parallel_compute_prefill_context", "_forward_prefill", "forward_mha"


def _homes(method: str, backend: str) -> tuple[str, ...]:
    """Where a method of a prefill backend lies: in the attention layer, from 0.21.0 in a class of its own."""
    old = {"trtllm_ragged:TrtllmRagged": "trtllm_ragged", "flashinfer:FlashInfer": "fi"}[backend]
    layer = f"MLACommonImpl._run_prefill_{method}_{old}"
    return f"{_COMMON}:{layer}", f"{_MLA}:{layer}", f"{_PREFILL}.{backend}PrefillBackend.run_prefill_{method}"


FIX = Fix(
    id="vllm.lse-log-base",
    title="Cached context counts too much in answers (FlashInfer and TRT-LLM prefill)",
    symptom=(
        "A prompt whose prefix is cached, or that is prefilled in several steps, is answered otherwise than the same prompt at "
        "once. The cached tokens get too much weight, the newest tokens too little. No error, and nothing in the log."
    ),
    symptoms=(CACHED_PREFIX, LONG_PROMPT, PARALLEL),
    cause=(
        "FlashInfer's and TRT-LLM's prefill kernels return the log-sum-exp in base 2; the merge of new tokens and context "
        "weighs with base e. In 0.10.0-0.10.2 FlashInfer's LSE also goes to the merge as [tokens, heads], which is read as "
        "[heads, tokens] (issue 26042)."
    ),
    correction=(
        "At a kernel path's first call one row is computed again; where the kernel is seen to return base 2, its LSE is "
        "brought to base e in place, before the merge (in 0.11.1-0.11.2 before the ranks of decode context parallelism combine "
        "theirs, which weighs with base e there, too). In 0.10.0-0.10.2 FlashInfer's LSE is also transposed."
    ),
    upstream=Upstream("vllm-project/vllm", pull=52796),
    hardware=(
        "Blackwell with DeepSeek-type models (MLA prefill through FlashInfer, the default of 0.10.0-0.14.1, or TRT-LLM ragged, "
        "the default of 0.15.0-0.17.1 and 0.18.1); any GPU with FlashInfer attention and decode context parallelism"
    ),
    default=True,
    default_reason="silent wrong output; fixed so upstream, done only where seen to be needed",
    targets=(
        Target(
            wrap.flashinfer,
            needed=wrap.unsettled_flashinfer_new_tokens,
            paths=_homes("new_tokens", "flashinfer:FlashInfer"),
        ),
        Target(
            wrap.flashinfer,
            needed=wrap.unsettled_flashinfer_context,
            paths=_homes("context_chunk", "flashinfer:FlashInfer"),
        ),
        Target(
            wrap.trtllm_new_tokens,
            needed=wrap.unsettled_trtllm_new_tokens,
            paths=_homes("new_tokens", "trtllm_ragged:TrtllmRagged"),
        ),
        Target(
            wrap.trtllm_context_chunk,
            needed=wrap.unsettled_trtllm_context,
            paths=_homes("context_chunk", "trtllm_ragged:TrtllmRagged"),
        ),
        Target(dcp_lse_base.run, needed=dcp_lse_base.unsettled, paths=(f"{_FLASHINFER}:BatchDCPPrefillWrapper.run",)),
        Target(dcp_lse_base.plan, paths=(f"{_FLASHINFER}:BatchDCPPrefillWrapper.plan",)),
    ),
    independent=True,
    # What the LSE goes through until it is merged
    witnesses=(
        *(f"{impl}.{method}" for impl in _IMPL for method in _PATH),
        f"{_MLA}:accumulate_mla_context_chunk",
        *(f"{_PREFILL}.{name}" for name in _SET_UP),
        "vllm.attention.ops.merge_attn_states:merge_attn_states",
        "vllm.v1.attention.ops.merge_attn_states:merge_attn_states",
        f"{_FLASHINFER}:BatchDCPPrefillWrapper.__init__",
        "vllm.attention.ops.common:cp_lse_ag_out_rs",
        "vllm.v1.attention.ops.common:cp_lse_ag_out_rs",
        "vllm.v1.attention.backends.utils:log2_lse_to_ln",
        f"{_MLA}:MLACommonPrefillMetadata.ContextChunk.num_requests",
        f"{_PREFILL}.trtllm_ragged:TrtllmRaggedPrefillBackend._get_workspace_buffer",
    ),
    cost=(
        "One launch over the LSE per attention call of a prefill with context (4 MB for 8192 tokens and 128 heads); once per "
        "kernel path and process, one row of one head and a wait for it. Some 10 µs of host time per layer under decode "
        "context parallelism."
    ),
    avoid=(
        "Compute MLA prefill by FlashAttention: `--attention-config.mla_prefill_backend FLASH_ATTN` from 0.21.0, "
        "`--attention-config.disable_flashinfer_prefill true --attention-config.use_trtllm_ragged_deepseek_prefill "
        "false` from 0.13.0; under DCP `--attention-backend FLASH_ATTN`."
    ),
    expect=(
        "On one replica, send a prompt of some ten thousand tokens twice, the second time with a new question at its end, and "
        "compare log-probabilities with those of the same prompt on a server started with --no-enable-prefix-caching and room "
        "for it in one step: stock, they differ by tenths; fixed, by rounding."
    ),
    hits=AnyOf(
        AllOf(
            Is("cached prefix", ON),
            Is("attention", "MLA"),
            Is("MLA prefill backend", "flashinfer", "trtllm_ragged"),
            Is("engine core", "V1"),
        ),
        AllOf(
            AnyOf(Is("cached prefix", ON), Is("speculative decoding", ON)),  # a verification has its request's context
            Is("attention", "MHA"),
            Above("decode context parallel size", 1),
            Is("attention backend", "FLASHINFER"),
        ),
    ),
)
