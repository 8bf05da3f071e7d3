"""sglang.aiter-unified-scales, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Given, Is, Not, Unseen
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, KV_SCALES

BUG = KnownBug(
    id="sglang.aiter-unified-scales",
    title="Garbage from checkpoints with calibrated KV scales and SGLANG_USE_AITER_UNIFIED_ATTN (AITER)",
    symptom="Decode multiplies the keys and values of generated tokens by scales that they were not divided by.",
    symptoms=(KV_SCALES, GARBAGE),
    releases=(">=0.5.10,<0.5.16",),
    code=("sglang.srt.layers.attention.aiter_backend:AiterAttnBackend.forward_decode",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("GPU", AMD),
        Is("attention", "MHA"),
        Is("decode backend", "aiter"),
        Is("KV cache scales", "calibrated FP8"),
        Not(Is("sliding-window KV pool", ON)),
        Given("$SGLANG_USE_AITER_UNIFIED_ATTN"),
        Not(Is("$SGLANG_AITER_KV_CACHE_LAYOUT", "vectorized_5d")),
        Unseen("whether the scales that the checkpoint brings differ from 1"),
    ),
    avoid="Set `--attention-backend triton`, or `--kv-cache-dtype bf16` with AITER.",
)
