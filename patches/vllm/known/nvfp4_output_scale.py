"""vllm.nvfp4-output-scale, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, KV_SCALES

BUG = KnownBug(
    id="vllm.nvfp4-output-scale",
    title="Worse answers with an NVFP4 KV cache on Blackwell: attention's output is FP8 without a scale",
    symptom="Small outputs of attention lose most of their bits, or become zero, on the way to a BF16 model.",
    symptoms=(KV_SCALES, BACKEND),
    releases=(">=0.21.0,<=0.33.0",),
    code=("vllm.v1.attention.backends.flashinfer:FlashInferImpl.forward",),
    upstream=Upstream("vllm-project/vllm", pull=55696),
    hits=AllOf(
        Is("KV cache dtype", "nvfp4", "nvfp4_4over6"),
        Is("attention backend", "FLASHINFER"),
        Is("compute capability", 100, 103),
        Unseen("an output projection whose quantization is not fused into attention"),
    ),
    avoid="Start with `--kv-cache-dtype fp8`.",
)
