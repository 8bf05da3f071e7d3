"""vllm.mla-fp8-flashinfer-prefill, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, KV_SCALES

BUG = KnownBug(
    id="vllm.mla-fp8-flashinfer-prefill",
    title="The first prompt ends the server with an FP8 MLA cache on Blackwell (FlashInfer prefill)",
    symptom="The first prompt fails: FlashInfer plans prefill for keys of 8 bits, and gets keys of 16.",
    symptoms=(
        DIES,
        KV_SCALES,
    ),
    releases=(">=0.10.2,<0.11.0",),
    code=("vllm.v1.attention.backends.mla.common:MLACommonMetadataBuilder._build_fi_prefill_wrappers",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(Is("attention", "MLA"), Is("MLA prefill backend", "flashinfer"), Is("KV cache dtype", "fp8", "fp8_e4m3")),
    avoid="Start with `--kv-cache-dtype auto`, or without FlashInfer.",
    harm=CRASH,
)
