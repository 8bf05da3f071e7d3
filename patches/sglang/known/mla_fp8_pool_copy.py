"""sglang.mla-fp8-pool-copy, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import KV_SCALES, SLOW

_BACKENDS = "sglang.srt.layers.attention"

BUG = KnownBug(
    id="sglang.mla-fp8-pool-copy",
    title="Slow decode of MLA models with an FP8 KV cache: each layer converts the whole pool (FlashInfer, fa3)",
    symptom="A step takes longer the larger the KV pool is, however little of it is in use. Peak memory grows, too.",
    symptoms=(SLOW, KV_SCALES),
    releases=(">=0.5.1,<=0.5.23",),
    code=(
        f"{_BACKENDS}.flashinfer_mla_backend:FlashInferMLAAttnBackend.forward_decode",
        f"{_BACKENDS}.flashattention_backend:FlashAttentionBackend.forward_decode",
    ),
    upstream=Upstream("sgl-project/sglang", pull=35322, issue=35291),
    harm=SLOWER,
    hits=AllOf(
        Is("attention", "MLA"),
        AnyOf(Is("--kv-cache-dtype", "fp8_e4m3", "fp8_e5m2"), Is("KV cache scales", "calibrated FP8")),
        AnyOf(
            Is("decode backend", "flashinfer", "fa3"),
            AllOf(Is("speculative decoding", ON), Is("verify backend", "flashinfer", "fa3")),
        ),
        Not(Is("--disaggregation-mode", "prefill")),
    ),
    avoid="Leave --kv-cache-dtype out, or decode, and verify drafts, on flashmla or trtllm_mla.",
)
