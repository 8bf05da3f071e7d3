"""sglang.flashinfer-16bit-scales, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, KV_SCALES

_BACKEND = "sglang.srt.layers.attention.flashinfer_backend:FlashInferAttnBackend"

BUG = KnownBug(
    id="sglang.flashinfer-16bit-scales",
    title="Garbage from checkpoints with calibrated KV scales over a 16-bit KV cache (FlashInfer)",
    symptom="Scores and values of cached tokens are multiplied by the scales, though a 16-bit cache is never divided by them.",
    symptoms=(KV_SCALES, GARBAGE),
    releases=(">=0.5.1,<=0.5.23",),
    code=(f"{_BACKEND}.forward_extend", f"{_BACKEND}.forward_decode"),
    upstream=Upstream("sgl-project/sglang", pull=4686),
    hits=AllOf(
        Is("attention", "MHA"),
        AnyOf(
            Is("decode backend", "flashinfer"),
            AllOf(Is("prefill backend", "flashinfer"), Is("cached prefix", ON), Since("0.5.18")),
        ),
        Is("KV cache scales", "unused"),
        Unseen("whether the scales that the checkpoint brings differ from 1"),
    ),
    avoid="Set `--attention-backend fa3` on Hopper, or `--kv-cache-dtype fp8_e4m3`, for which the scales are made.",
)
