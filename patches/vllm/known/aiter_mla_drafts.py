"""vllm.aiter-mla-drafts, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE, SPECULATION

BUG = KnownBug(
    id="vllm.aiter-mla-drafts",
    title="Answers are worse with drafts on AITER MLA: queries of a request are told apart wrongly",
    symptom="With MTP or EAGLE, DeepSeek models lose accuracy or derail on AMD; without drafts they are right.",
    symptoms=(SPECULATION, BACKEND, GARBAGE),
    releases=(">=0.14.0,<0.27.0",),
    code=("vllm.v1.attention.backends.mla.rocm_aiter_mla:AiterMLAMetadataBuilder._build_decode",),
    upstream=Upstream("vllm-project/vllm", pull=45227),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("attention backend", "ROCM_AITER_MLA", "ROCM_AITER_TRITON_MLA"),
        Is("speculative decoding", ON),
        AnyOf(Is("full CUDA graphs", OFF), Unseen("a kernel of AITER that plans several queries of a request as one")),
    ),
    avoid="Start with `--attention-backend TRITON_MLA`, or without `--speculative-config`.",
)
