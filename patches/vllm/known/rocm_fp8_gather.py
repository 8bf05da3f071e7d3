"""vllm.rocm-fp8-gather, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import KV_SCALES

BUG = KnownBug(
    id="vllm.rocm-fp8-gather",
    title="Worse answers behind a cached context with calibrated KV scales (ROCM_AITER_FA)",
    symptom=(
        "Answers lose accuracy with an FP8 KV cache: the gathered context has no scale up to 0.14.1, and is rounded to FP8 "
        "again behind it."
    ),
    symptoms=(KV_SCALES,),
    releases=(">=0.11.1,<0.20.0",),
    code=("vllm.v1.attention.backends.rocm_aiter_fa:cp_mha_gather_cache_kernel",),
    upstream=Upstream("vllm-project/vllm", pull=39122),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("attention backend", "ROCM_AITER_FA"),
        Is("KV cache dtype", "fp8", "fp8_e4m3"),
        Is("cached prefix", ON),
        Unseen("scales of K or V that are not 1"),
    ),
    avoid="Start with --kv-cache-dtype auto, if the checkpoint does not ask for fp8 itself.",
)
