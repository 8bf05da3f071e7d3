"""sglang.aiter-kv-scales, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, KV_SCALES

BUG = KnownBug(
    id="sglang.aiter-kv-scales",
    title="Garbage from checkpoints with calibrated KV scales and an FP8 KV cache (AITER)",
    symptom="Decode, and up to 0.5.9 prefill, reads keys and values that were divided by the scales as if these were 1.",
    symptoms=(KV_SCALES, GARBAGE),
    releases=(">=0.5.6.post2,<0.5.23",),
    code=("sglang.srt.layers.attention.aiter_backend:AiterAttnBackend.forward_decode",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("GPU", AMD),
        Is("attention", "MHA"),
        AnyOf(Is("decode backend", "aiter"), AllOf(Is("prefill backend", "aiter"), Not(Since("0.5.10")))),
        Is("KV cache scales", "calibrated FP8"),
        Not(AllOf(Since("0.5.10"), AnyOf(Is("sliding-window KV pool", ON), Given("$SGLANG_USE_AITER_UNIFIED_ATTN")))),
        Not(Is("$SGLANG_AITER_KV_CACHE_LAYOUT", "vectorized_5d")),
        Unseen("whether the scales that the checkpoint brings differ from 1"),
    ),
    avoid="Set `--attention-backend triton`, or from 0.5.16 on SGLANG_USE_AITER_UNIFIED_ATTN=1.",
)
