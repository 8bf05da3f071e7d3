"""vllm.rocm-mla-context-chunks, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, LONG_PROMPT

BUG = KnownBug(
    id="vllm.rocm-mla-context-chunks",
    title="Long cached contexts are read from shifted keys on AMD (MLA, TRITON_MLA)",
    symptom="Answers behind a long context are garbage when several prompts are prefilled in one step.",
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
        Is("attention backend", "TRITON_MLA"),
        AnyOf(Above("decode context parallel size", 1), Unseen("three prompts or more with context in one step")),
        Unseen("a context beyond its share of the workspace, so that it is read in chunks"),
    ),
    avoid="Start with `--max-num-seqs 2`, or with `VLLM_ROCM_USE_AITER=1` and `--block-size 1`.",
)
