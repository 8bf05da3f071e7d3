"""sglang.aiter-kv-scales, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Given, Is, Not, Unseen
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, KV_SCALES

BUG = KnownBug(
    id="sglang.aiter-kv-scales",
    title="Garbage from checkpoints with calibrated KV scales and an FP8 KV cache (AITER)",
    symptom="Decode reads the prompt's keys and values, which were divided by the scales, as if the scales were 1.",
    symptoms=(KV_SCALES, GARBAGE),
    releases=(">=0.5.6.post2,<0.5.23",),
    code=("sglang.srt.layers.attention.aiter_backend:AiterAttnBackend.forward_decode",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("GPU", AMD),
        Is("attention", "MHA"),
        Is("decode backend", "aiter"),
        Is("KV cache scales", "calibrated FP8"),
        Not(Is("sliding-window KV pool", ON)),
        Not(Given("$SGLANG_USE_AITER_UNIFIED_ATTN")),
        Not(Given("$SGLANG_AITER_KV_CACHE_LAYOUT")),
        Unseen("whether the scales that the checkpoint brings differ from 1"),
    ),
    avoid="Set `--attention-backend triton`, or from 0.5.16 on SGLANG_USE_AITER_UNIFIED_ATTN=1.",
)
