"""vllm.wake-calibrated-scales, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, KV_SCALES

BUG = KnownBug(
    id="vllm.wake-calibrated-scales",
    title="Garbage after a wake-up with calibrated KV scales (FlashInfer)",
    symptom="After any sleep, KV is written with scales of 1 and read with those of the checkpoint.",
    symptoms=(KV_SCALES, GARBAGE),
    releases=(">=0.12.0,<0.29.0",),
    code=("vllm.v1.worker.gpu_model_runner:GPUModelRunner.init_fp8_kv_scales",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("--enable-sleep-mode", ON),
        Is("model runner", "V1"),
        Is("KV cache dtype", "fp8", "fp8_e4m3", "fp8_e5m2"),
        Is(
            "attention backend",
            "FLASHINFER",
            "FLASHINFER_MLA",
            "FLASHINFER_MLA_SPARSE",
            "TOKENSPEED_MLA",
            "ROCM_AITER_UNIFIED_ATTN",
        ),
        Unseen("scales of K or V that are not 1, and a sleep"),
    ),
    avoid="Do not let the server sleep, or keep a KV cache of 16 bits.",
)
