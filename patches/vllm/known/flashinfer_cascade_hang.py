"""vllm.flashinfer-cascade-hang, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SHARED_BATCH

BUG = KnownBug(
    id="vllm.flashinfer-cascade-hang",
    title="The server hangs when requests share a long prefix (FlashInfer)",
    symptom="The engine stops answering once a batch shares a prefix of 256 tokens or more and cascade attention is planned.",
    symptoms=(DIES, SHARED_BATCH),
    releases=(">=0.10.0,<0.11.0",),
    code=("vllm.v1.attention.backends.flashinfer:FlashInferMetadataBuilder.use_cascade_attention",),
    upstream=Upstream("vllm-project/vllm", issue=26130),
    hits=AllOf(
        AllOf(Is("attention", "MHA"), Is("attention backend", "FLASHINFER")),
        Not(Is("--disable-cascade-attn", ON)),
        Not(Is("KV cache dtype", "fp8", "fp8_e4m3", "fp8_e5m2")),
        Unseen("eight requests or more with a common prefix of 256 tokens or more"),
    ),
    avoid="Start with `--disable-cascade-attn`.",
    harm=CRASH,
)
