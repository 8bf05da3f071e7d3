"""sglang.lse-log-base, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream, WorstCost
from attnfix.compat.symptoms import CACHED_PREFIX, LONG_PROMPT

from . import wrap

_FLASHINFER = "sglang.srt.layers.attention.flashinfer_mla_backend"
_TRTLLM = "sglang.srt.layers.attention.trtllm_mla_backend"
_MODEL = "sglang.srt.models.deepseek_v2:DeepseekV2AttentionMLA"
_MIXIN = "sglang.srt.models.deepseek_common.attention_forward_methods.forward_mha:DeepseekMHAForwardMixin"
_MODES = ("target_verify", "extend", "draft_extend", "draft_extend_v2")
#: Backends that merge chunks of a cached prefix with an LSE of base 2
_MERGES = "trtllm_mla", "flashinfer", "flashmla", "cutlass_mla"

FIX = Fix(
    id="sglang.lse-log-base",
    title="Cached prefixes count too much in answers of DeepSeek-type models",
    symptom=(
        "DeepSeek-type models answer a prompt whose long prefix is cached otherwise than the same prompt uncached. The cached "
        "tokens get too much weight, the newest tokens too little. No error, and nothing in the log."
    ),
    symptoms=(CACHED_PREFIX, LONG_PROMPT),
    cause=(
        "FlashInfer's and TRT-LLM's prefill kernels return the log-sum-exp in base 2; the merge of new tokens and prefix "
        "chunks weighs with base e."
    ),
    correction=(
        "At a kernel path's first call one row is computed again; where the kernel is seen to return base 2, its LSE is "
        "brought to base e in place, before the merge."
    ),
    upstream=Upstream("sgl-project/sglang", pull=35045, issue=40903, report="sglang-lse-log-base"),
    hardware=(
        "DeepSeek-type models on Blackwell with trtllm_mla (every prefix hit), on any GPU with --attention-backend flashinfer, "
        "flashmla or cutlass_mla (8192 cached tokens or more in a batch beyond one-shot capacity, by default 128k tokens)"
    ),
    default=True,
    default_reason="silent wrong output; proven on a GPU with FlashInfer's kernels, done only where seen to be needed",
    targets=(
        Target(wrap.to_natural, needed=wrap.unsettled_ragged, paths=(f"{_FLASHINFER}:FlashInferMhaChunkKVRunner.forward",)),
        Target(wrap.to_natural, needed=wrap.unsettled_trtllm, paths=(f"{_TRTLLM}:TRTLLMMLABackend.forward_extend",)),
    ),
    independent=True,
    # What the LSE goes through until it is merged
    witnesses=(
        f"{_FLASHINFER}:FlashInferMLAAttnBackend.forward_extend",
        f"{_TRTLLM}:TRTLLMMLABackend._run_prefill_kernel",
        f"{_MODEL}._chunked_prefix_attn_mha",
        f"{_MIXIN}._chunked_prefix_attn_mha",
        f"{_MODEL}.forward_normal_chunked_kv_core",
        f"{_MIXIN}.forward_normal_chunked_kv_core",
        *(f"sglang.srt.model_executor.forward_batch_info:ForwardMode.is_{mode}" for mode in _MODES),
        "sglang.srt.environ:EnvField",
    ),
    remove_when="the engine converts, or FlashInfer returns the natural base: attnfix then sees it and does nothing",
    cost=(
        "One launch over the LSE per attention call of a forward pass with a cached prefix (4 MB for 8192 tokens and 128 "
        "heads); once per kernel path and process, one row of one head and a wait for it."
    ),
    worst_cost=WorstCost(0.948, 0.922, 0.975, "every prompt has a cached prefix of 8,192 tokens", "h100-sglang-0.5.23"),
    avoid=(
        "Start with `--disable-chunked-prefix-cache`: nothing is merged; prefill behind prefixes slows. With "
        "trtllm_mla and speculation 0.5.5.post1 to 0.5.15.post1 it hits sglang.stale-prefill-fallback."
    ),
    expect=(
        "On one replica, send a prompt of some ten thousand tokens twice, the second time with a new question at its end, and "
        "compare log-probabilities with those of the same prompt on a server started with --disable-radix-cache: stock, they "
        "differ by tenths; fixed, by rounding."
    ),
    look_does="its look goes by what corrections have seen the kernel do",
    hits=AllOf(
        Is("attention", "MLA"),
        AnyOf(*(Is(f"{model}prefill backend", *_MERGES) for model in ("", "draft "))),
        Is("cached prefix", ON),
        Is("chunked prefix cache", ON),
    ),
)
