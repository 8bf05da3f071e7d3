"""vllm.flashinfer-lengths-sync, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="vllm.flashinfer-lengths-sync",
    title="Each step waits for the GPU (FlashInfer, asynchronous scheduling)",
    symptom="Throughput is lower than necessary: lengths that the host has are copied back from the GPU, and the step waits.",
    symptoms=(SLOW,),
    releases=(">=0.14.0,<0.16.0",),
    code=("vllm.v1.attention.backends.flashinfer:FlashInferMetadataBuilder.build",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("attention backend", "FLASHINFER"), Is("kernels of the attention backend", "FlashInfer"), Is("async scheduling", ON)
    ),
    avoid="Take FLASH_ATTN or TRITON_ATTN, where the model allows it.",
    harm=SLOWER,
)
