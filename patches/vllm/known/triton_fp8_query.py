"""vllm.triton-fp8-query, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE, KV_SCALES

BUG = KnownBug(
    id="vllm.triton-fp8-query",
    title="Garbage from checkpoints with calibrated FP8 KV scales on TRITON_ATTN (NVIDIA)",
    symptom="Queries are FP8, too, and the kernel then leaves out the scales of keys and values.",
    symptoms=(KV_SCALES, BACKEND, GARBAGE),
    releases=(">=0.10.0,<0.22.0",),
    code=(
        "vllm.attention.ops.triton_unified_attention:unified_attention",
        "vllm.v1.attention.ops.triton_unified_attention:unified_attention",
    ),
    upstream=Upstream("vllm-project/vllm", pull=42650, issue=42580),
    hits=AllOf(
        Is("GPU", "NVIDIA"),
        Is("attention backend", "TRITON_ATTN"),
        Is("KV cache dtype", "fp8", "fp8_e4m3"),
        Unseen("KV scales other than 1, of the checkpoint or of --calculate-kv-scales"),
    ),
    avoid="Set `--kv-cache-dtype bfloat16`, or another attention backend.",
)
