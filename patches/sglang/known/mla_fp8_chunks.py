"""sglang.mla-fp8-chunks, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES, LONG_PROMPT

BUG = KnownBug(
    id="sglang.mla-fp8-chunks",
    title="DeepSeek models with an FP8 KV cache end at a prefill behind 8192 cached tokens",
    symptom="The cached prefix goes to a projection in FP8, as it is stored, and the server ends in an error of types.",
    symptoms=(DIES, CACHED_PREFIX, LONG_PROMPT),
    releases=(">=0.5.1,<0.5.2",),
    code=("sglang.srt.models.deepseek_v2:DeepseekV2AttentionMLA._chunked_prefix_attn_mha",),
    upstream=Upstream("sgl-project/sglang", pull=9733, issue=9704),
    harm=CRASH,
    hits=AllOf(
        Is("attention", "MLA"),
        Is("--kv-cache-dtype", "fp8_e4m3", "fp8_e5m2"),
        Is("prefill backend", "fa3", "flashinfer", "flashmla", "cutlass_mla", "trtllm_mla"),
        Is("chunked prefix cache", ON),
        Not(Is("--flashinfer-mla-disable-ragged", "on")),
        Unseen("a prefill with 8192 cached tokens in all, as the second chunk of a long prompt"),
    ),
    avoid="Set `--disable-chunked-prefix-cache`, or leave --kv-cache-dtype out.",
)
