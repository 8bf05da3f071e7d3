"""vllm.singleton-stride, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.singleton-stride",
    title="One KV head on each rank can end a Hopper server with an illegal instruction",
    symptom="`cudaErrorIllegalInstruction` ends the engine when tensor parallelism leaves one KV head to each rank.",
    symptoms=(DIES,),
    releases=(">=0.10.0,<0.21.0",),
    code=("vllm.v1.attention.backends.flash_attn:FlashAttentionImpl.forward",),
    upstream=Upstream("vllm-project/vllm", issue=40737),
    hits=AllOf(
        Is("attention", "MHA"),
        Is("attention backend", "FLASH_ATTN"),
        Is("compute capability", 90),
        Is("KV heads of a rank", 1),
        Unseen("the strides of the KV cache"),
    ),
    avoid="Set a smaller `--tensor-parallel-size`, so that each rank has two KV heads, or `--attention-backend TRITON_ATTN`.",
    harm=CRASH,
)
