"""vllm.fa2-cascade, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, SHARED_BATCH

BUG = KnownBug(
    id="vllm.fa2-cascade",
    title="Wrong answers when eight requests share a long prefix (FlashAttention 2)",
    symptom=(
        "On A100 and L40S, eight requests or more with a common prefix of 256 tokens or more get wrong answers: split-KV "
        "LSE is wrong."
    ),
    symptoms=(SHARED_BATCH, CACHED_PREFIX),
    releases=(">=0.10.0,<0.11.0",),
    code=("vllm.v1.attention.backends.flash_attn:FlashAttentionImpl.forward",),
    upstream=Upstream("vllm-project/vllm", issue=22103, pull=25537),
    hits=AllOf(
        Is("engine core", "V1"),
        Is("attention", "MHA"),
        Is("attention backend", "FLASH_ATTN"),
        Not(Is("compute capability", 90)),
        Not(Is("--disable-cascade-attn", ON)),
        AnyOf(Is("sliding-window layers", OFF), Unseen("layers of full attention beside those with windows")),
    ),
    avoid="Start with `--disable-cascade-attn`.",
)
