"""vllm.gemma3-image-tiles, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES

BUG = KnownBug(
    id="vllm.gemma3-image-tiles",
    title="Gemma 3 misreads images: their tokens hardly see those behind them (TRITON_ATTN)",
    symptom="Answers on images are worse than the reference: the kernel ends at the causal limit of each block.",
    symptoms=(IMAGES,),
    releases=(">=0.13.0,<0.14.0",),
    code=(
        "vllm.attention.ops.triton_unified_attention:kernel_unified_attention_2d",
        "vllm.v1.attention.ops.triton_unified_attention:kernel_unified_attention_2d",
    ),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("architecture", "Gemma3ForConditionalGeneration"),
        AnyOf(
            AllOf(Is("GPU", "NVIDIA"), Not(Is("attention backend", "FLEX_ATTENTION"))),
            AllOf(Is("GPU", "AMD"), Is("attention backend", "TRITON_ATTN")),
        ),
    ),
    avoid="Start with `--attention-backend FLEX_ATTENTION`.",
)
