"""vllm.rocm-hybrid-gather, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, CACHED_PREFIX

BUG = KnownBug(
    id="vllm.rocm-hybrid-gather",
    title="Garbage behind a cached context (hybrid models on ROCM_AITER_FA)",
    symptom="Long prompts and follow-up turns give garbage or NaN: the context is gathered as if K and V of a page lay apart.",
    symptoms=(BACKEND, CACHED_PREFIX),
    releases=(">=0.11.1,<0.19.0",),
    code=("vllm.v1.attention.backends.rocm_aiter_fa:cp_mha_gather_cache_kernel",),
    upstream=Upstream("vllm-project/vllm", pull=37228),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("recurrent layers", ON),
        Is("attention backend", "ROCM_AITER_FA"),
        Is("cached prefix", ON),
    ),
    avoid="Start with --attention-backend TRITON_ATTN; up to 0.14.1 with VLLM_ATTENTION_BACKEND=TRITON_ATTN.",
)
