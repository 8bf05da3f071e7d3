"""sglang.zero-kv-rows, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, SHARED_BATCH

from . import wrap

_BACKEND = "sglang.srt.layers.attention.trtllm_mla_backend"

FIX = Fix(
    id="sglang.zero-kv-rows",
    title="Wrong answers when prompts of unequal cached length share a prefill (MLA)",
    symptom=(
        "Wrong answers from DeepSeek-type models when prompts of unequal cached length share a prefill batch and the cached "
        "prefix is longer than one chunk. No error, and nothing in the log."
    ),
    symptoms=(CACHED_PREFIX, SHARED_BATCH),
    cause=(
        "The TRT-LLM ragged kernel leaves output and LSE of a request undefined where it has no KV in a chunk; the engine "
        "merges those rows as if they were attention."
    ),
    correction="Rows of requests without KV in the chunk get output 0 and LSE -inf, in place, before the merge.",
    upstream=Upstream("sgl-project/sglang", pull=22688, issue=22291),
    hardware="Blackwell (--attention-backend trtllm_mla)",
    default=True,
    default_reason="silent wrong output; fixed upstream in the same way",
    targets=(
        Target(wrap.forward_extend, needed=wrap.has_empty_requests, paths=(f"{_BACKEND}:TRTLLMMLABackend.forward_extend",)),
        Target(
            wrap.prepare_chunked_prefix_cache_info,
            paths=(
                "sglang.srt.model_executor.forward_batch_info:ForwardBatch.prepare_chunked_prefix_cache_info",
                "sglang.srt.model_executor.forward_batch_deepseek_mha_mixin"
                ":ForwardBatchDeepSeekMHAMixin.prepare_chunked_prefix_cache_info",
            ),
        ),
    ),
    witnesses=(
        f"{_BACKEND}:TRTLLMMLAPrefillMetadata",
        f"{_BACKEND}:TRTLLMMLABackend.init_forward_metadata",
        "sglang.srt.environ:EnvField",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode.is_target_verify",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode.is_draft_extend",
        "sglang.srt.model_executor.forward_batch_info:ForwardBatch.get_prefix_chunk_seq_lens",
        "sglang.srt.model_executor.forward_batch_deepseek_mha_mixin:ForwardBatchDeepSeekMHAMixin.get_prefix_chunk_seq_lens",
        "sglang.srt.models.deepseek_v2:DeepseekV2AttentionMLA._chunked_prefix_attn_mha",
        "sglang.srt.models.deepseek_common.attention_forward_methods.forward_mha"
        ":DeepseekMHAForwardMixin._chunked_prefix_attn_mha",
    ),
    cost=(
        "Nothing in a batch without empty chunks; else one kernel launch per chunk and layer, whose time grows with the empty "
        "rows alone."
    ),
    avoid=(
        "Start with `--disable-chunked-prefix-cache`: cached prefixes go through absorbed MLA; prefill slows. With "
        "speculation from 0.5.5.post1 on it hits sglang.stale-prefill-fallback."
    ),
    expect=(
        "On one replica, send a long prompt twice (the second time its prefix is cached) beside short fresh ones: stock, the "
        "answers change with the company they keep; fixed, each equals that of the prompt sent alone. Nothing else changes."
    ),
    hits=AllOf(
        Is("attention", "MLA"),
        AnyOf(*(Is(f"{model}prefill backend", "trtllm_mla") for model in ("", "draft "))),
        Is("cached prefix", ON),
        Is("chunked prefix cache", ON),
    ),
)
