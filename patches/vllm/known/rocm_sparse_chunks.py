"""vllm.rocm-sparse-chunks, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CONTEXT_LIMIT, GARBAGE

BUG = KnownBug(
    id="vllm.rocm-sparse-chunks",
    title="Garbage after a prompt of three or more chunks (sparse MLA on AMD)",
    symptom="Later chunks of a prefill take the first one's split of the work, and long prompts end in repetition.",
    symptoms=(GARBAGE, CONTEXT_LIMIT),
    releases=(">=0.23.0,<0.25.0",),
    code=("vllm.v1.attention.backends.mla.rocm_aiter_mla_sparse:ROCMAiterMLASparseMetadataBuilder.build",),
    upstream=Upstream("vllm-project/vllm", pull=47567, issue=47042),
    hits=AllOf(
        Is("attention", "sparse MLA"),
        Is("GPU", "AMD"),
        Unseen("prompts of three chunks or more, so of over twice --max-num-batched-tokens"),
    ),
    avoid="Raise `--max-num-batched-tokens` above the length of the longest prompt.",
)
