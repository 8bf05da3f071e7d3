"""sglang.mla-fp8-cublas, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

_ATTENTION = "sglang.srt.models.deepseek_v2:DeepseekV2AttentionMLA"

BUG = KnownBug(
    id="sglang.mla-fp8-cublas",
    title="DeepSeek models with FP8 weights per channel or per tensor end at the start with cuBLAS 12.9",
    symptom="The absorbed projection of MLA ends in an error of cuBLAS: scales of later layers are not aligned.",
    symptoms=(DIES,),
    releases=(">=0.5.1,<0.5.3.post2",),
    code=(f"{_ATTENTION}.forward_absorb_prepare", f"{_ATTENTION}.forward_absorb_core"),
    upstream=Upstream("sgl-project/sglang", pull=11360, issue=11272),
    harm=CRASH,
    hits=AllOf(
        Is("attention", "MLA", "sparse MLA"),
        Is("GPU", "NVIDIA"),
        Unseen("whether the weights are FP8 without blocks of 128, and cuBLAS is 12.9, as in images of CUDA 12.9"),
    ),
    avoid="Install nvidia-cublas-cu12 12.8.",
)
