"""vllm.flashinfer-cascade-hang, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is, Not, Unseen
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
        Is("engine core", "V1"),
        Is("attention", "MHA"),
        Is("attention backend", "FLASHINFER"),
        Is("KV cache dtype", "auto"),
        Not(Is("--disable-cascade-attn", ON)),
        AnyOf(Is("sliding-window layers", OFF), Unseen("layers of full attention beside those with windows")),
    ),
    avoid="Start with `--disable-cascade-attn`.",
    harm=CRASH,
)
