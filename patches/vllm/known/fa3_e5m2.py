"""vllm.fa3-e5m2, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, KV_SCALES

BUG = KnownBug(
    id="vllm.fa3-e5m2",
    title="Garbage with a KV cache of fp8_e5m2 (FlashAttention on Hopper)",
    symptom="Answers are garbage: keys and values are written as e5m2, and read as e4m3.",
    symptoms=(
        KV_SCALES,
        GARBAGE,
    ),
    releases=(">=0.10.0,<0.10.1",),
    code=("vllm.v1.attention.backends.flash_attn:FlashAttentionImpl.forward",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("engine core", "V1"),
        Is("attention", "MHA"),
        Is("attention backend", "FLASH_ATTN"),
        Is("compute capability", 90),
        Is("KV cache dtype", "fp8_e5m2"),
    ),
    avoid="Set `--kv-cache-dtype fp8_e4m3`.",
)
