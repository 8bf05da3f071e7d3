"""vllm.padded-head-scales, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, KV_SCALES, SHARED_BATCH

BUG = KnownBug(
    id="vllm.padded-head-scales",
    title="Gemma 4 garbles answers under load with a scale per token and head: scales land in other blocks",
    symptom="With int4, int8 or fp8_per_token_head, answers rot as the KV cache fills: scales share bytes with keys.",
    symptoms=(KV_SCALES, SHARED_BATCH, GARBAGE),
    releases=(">=0.24.0,<0.26.0",),
    code=("vllm.v1.attention.backends.triton_attn:TritonAttentionImpl._ensure_scale_caches",),
    upstream=Upstream("vllm-project/vllm", issue=49716),
    hits=AllOf(
        Is("KV cache dtype", "int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"),
        Is("sliding-window layers", ON),
        Is("hybrid KV cache manager", ON),
        Unseen("layers of two head sizes whose pages do not divide each other, as of Gemma 4"),
    ),
    avoid="Start with another `--kv-cache-dtype`.",
)
