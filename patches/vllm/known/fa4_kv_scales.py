"""vllm.fa4-kv-scales, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE, KV_SCALES

BUG = KnownBug(
    id="vllm.fa4-kv-scales",
    title="Garbage from checkpoints with calibrated FP8 KV scales on FLASH_ATTN on Blackwell",
    symptom="FlashAttention 4 is called without the scales of queries, keys and values.",
    symptoms=(KV_SCALES, BACKEND, GARBAGE),
    releases=(">=0.27.0,<0.28.0",),
    code=("vllm.vllm_flash_attn.flash_attn_interface:flash_attn_varlen_func",),
    upstream=Upstream("vllm-project/vllm", pull=51363),
    hits=AllOf(
        Is("compute capability", 100, 103),
        Is("attention backend", "FLASH_ATTN"),
        Is("KV cache dtype", "fp8", "fp8_e4m3"),
        Unseen("KV scales other than 1, of the checkpoint or of --calculate-kv-scales"),
    ),
    avoid="Set `--attention-backend FLASHINFER`, or `--kv-cache-dtype bfloat16`.",
)
