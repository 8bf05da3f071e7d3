"""vllm.aiter-fa-decode-sync, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is, Not, Since
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="vllm.aiter-fa-decode-sync",
    title="Each decode step waits for the GPU (ROCM_AITER_FA)",
    symptom="Decoding is slower than the GPU allows: lengths are copied to the CPU before each step, prompts or not.",
    symptoms=(SLOW,),
    releases=(">=0.14.0,<0.22.0",),
    code=("vllm.v1.attention.backends.rocm_aiter_fa:AiterFlashAttentionMetadataBuilder.build",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("attention backend", "ROCM_AITER_FA"),
        AnyOf(
            Is("async scheduling", ON),
            Above("pipeline parallel size", 1),
            AllOf(Is("drafts from hidden states", ON), Not(Since("0.17.0"))),
        ),
    ),
    avoid="Start with `--attention-backend TRITON_ATTN`, and compare.",
    harm=SLOWER,
)
