"""sglang.aiter-pool-copy, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="sglang.aiter-pool-copy",
    title="Each decode step copies the whole FP8 KV pool of each layer to 16 bits (AITER)",
    symptom="Decoding with an FP8 KV cache is far slower than with one of 16 bits, and slower the larger the pool is.",
    symptoms=(SLOW,),
    releases=(">=0.5.6.post2,<0.5.12",),
    code=("sglang.srt.layers.attention.aiter_backend:AiterAttnBackend.forward_decode",),
    upstream=Upstream("sgl-project/sglang", pull=24129),
    hits=AllOf(
        Is("GPU", AMD),
        Is("attention", "MHA"),
        Is("decode backend", "aiter"),
        AnyOf(Is("--kv-cache-dtype", "fp8_e4m3", "fp8_e5m2"), Is("KV cache scales", "calibrated FP8")),
        Not(AllOf(Since("0.5.10"), AnyOf(Is("sliding-window KV pool", ON), Given("$SGLANG_USE_AITER_UNIFIED_ATTN")))),
    ),
    avoid="Set `--kv-cache-dtype bf16`, or set `--attention-backend triton`.",
    harm=SLOWER,
)
