"""sglang.mla-fp8-prefix-chunks, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES, KV_SCALES

BUG = KnownBug(
    id="sglang.mla-fp8-prefix-chunks",
    title="DeepSeek with an FP8 KV cache ends at the first long cached prefix",
    symptom="A prefill whose cached prefixes hold 8192 tokens or more ends: the keys and values are made from raw FP8 bytes.",
    symptoms=(DIES, CACHED_PREFIX, KV_SCALES),
    releases=(">=0.5.1,<0.5.2",),
    code=("sglang.srt.models.deepseek_v2:DeepseekV2AttentionMLA._chunked_prefix_attn_mha",),
    upstream=Upstream("sgl-project/sglang", pull=9733, issue=9704),
    harm=CRASH,
    hits=AllOf(
        Is("attention", "MLA"),
        Is("--kv-cache-dtype", "fp8_e4m3", "fp8_e5m2"),
        Is("chunked prefix cache", ON),
        AnyOf(
            Is("prefill backend", "fa3", "cutlass_mla", "trtllm_mla"),
            AllOf(Is("prefill backend", "flashinfer", "flashmla"), Is("--flashinfer-mla-disable-ragged", OFF)),
        ),
        Unseen("prefills whose cached prefixes reach 8192 tokens together"),
    ),
    avoid="Set `--disable-chunked-prefix-cache`, or `--kv-cache-dtype auto`.",
)
