"""vllm.rocm-mamba-gemm, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.rocm-mamba-gemm",
    title="Mamba's states go wrong where two to four requests are decoded together (AMD MI200 to MI350)",
    symptom="Answers are right alone and garbage with one to three others: a GEMM for few rows ignores their stride.",
    symptoms=(SHARED_BATCH, GARBAGE),
    releases=(">=0.10.0,<0.15.0",),
    code=("vllm._custom_ops:wvSplitK",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("GPU", "AMD"),
        AnyOf(
            Is("architecture", "MambaForCausalLM"),
            AllOf(Not(Since("0.14.0")), Is("architecture", "FalconMambaForCausalLM", "JambaForCausalLM", "Plamo2ForCausalLM")),
        ),
        Not(Is("$VLLM_ROCM_USE_SKINNY_GEMM", "0", "False", "false")),
        Unseen("steps of two to four tokens"),
    ),
    avoid="Set `VLLM_ROCM_USE_SKINNY_GEMM=0`.",
)
