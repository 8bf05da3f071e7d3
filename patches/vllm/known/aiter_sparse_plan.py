"""vllm.aiter-sparse-plan, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, LONG_PROMPT

BUG = KnownBug(
    id="vllm.aiter-sparse-plan",
    title="Long prompts are misread on AMD by DeepSeek-V3.2 and GLM-5: a chunk runs by another chunk's plan",
    symptom="Answers to prompts of several chunks derail, while short prompts are right.",
    symptoms=(LONG_PROMPT, GARBAGE),
    releases=(">=0.23.0,<0.25.0",),
    code=("vllm.v1.attention.backends.mla.rocm_aiter_mla_sparse:ROCMAiterMLASparseMetadataBuilder.build",),
    upstream=Upstream("vllm-project/vllm", issue=47042),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("architecture", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"),
        Unseen("two steps of equally many tokens whose prompts are computed to unlike lengths, as chunks of one prompt"),
    ),
    avoid=(
        "Start with `--no-enable-chunked-prefill --no-enable-prefix-caching`, and `--max-num-batched-tokens` of "
        "`--max-model-len` or more."
    ),
)
