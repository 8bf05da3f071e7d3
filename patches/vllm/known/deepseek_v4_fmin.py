"""vllm.deepseek-v4-fmin, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.deepseek-v4-fmin",
    title="No server starts DeepSeek-V4 with CUDA 12",
    symptom="The start fails with: module cutlass.cute.arch has no attribute fmin.",
    symptoms=(DIES,),
    releases=(">=0.22.0,<0.22.1",),
    code=("vllm.models.deepseek_v4.nvidia.ops.sparse_attn_compress_cutedsl:SparseAttnCompressNormRopeStoreC4Kernel.kernel",),
    upstream=Upstream("vllm-project/vllm", pull=44236, issue=44210),
    hits=AllOf(
        Is("architecture", "DeepseekV4ForCausalLM"),
        Is("GPU", "NVIDIA"),
        Unseen("an nvidia-cutlass-dsl without fmin, as the one for CUDA 12"),
    ),
    avoid="Nothing within the release avoids it; take release 0.22.1.",
    harm=CRASH,
)
