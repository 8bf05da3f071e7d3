"""vllm.rocm-mla-context-chunks, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, LONG_PROMPT

BUG = KnownBug(
    id="vllm.rocm-mla-context-chunks",
    title="Long cached contexts are read from shifted keys on AMD (MLA)",
    symptom="Answers behind a long context are garbage when three prompts or more are prefilled in one step.",
    symptoms=(LONG_PROMPT, CACHED_PREFIX, GARBAGE),
    releases=(">=0.10.0,<0.25.0",),
    code=(
        "vllm.v1.attention.backends.mla.common:MLACommonMetadataBuilder.build",
        "vllm.model_executor.layers.attention.mla_attention:MLACommonMetadataBuilder.build",
    ),
    upstream=Upstream("vllm-project/vllm", pull=46114),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("attention", "MLA"),
        AnyOf(
            Is("attention backend", "TRITON_MLA"),
            AllOf(Since("0.20.0"), Is("attention backend", "ROCM_AITER_MLA", "ROCM_AITER_TRITON_MLA")),
        ),
        Not(Is("--block-size", "1")),
        Unseen("three prompts or more in one step, with contexts beyond their share of the workspace (65536 tokens)"),
    ),
    avoid="Start with `--max-num-seqs 2`, or with `VLLM_ROCM_USE_AITER=1` and `--block-size 1`.",
)
