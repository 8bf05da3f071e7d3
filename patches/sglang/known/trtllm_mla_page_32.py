"""sglang.trtllm-mla-page-32, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, LONG_PROMPT

BUG = KnownBug(
    id="sglang.trtllm-mla-page-32",
    title="Garbage beyond 2,048 tokens of context with pages of 32 tokens (TRT-LLM MLA)",
    symptom="The table of pages is filled in steps of 4,096 tokens with 64 pages each: half of the context is missing.",
    symptoms=(GARBAGE, LONG_PROMPT),
    releases=(">=0.5.1,<0.5.4",),
    code=("sglang.srt.layers.attention.utils:create_flashmla_kv_indices_triton",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("decode backend", "trtllm_mla"),
        Is("--page-size", "32"),
    ),
    avoid="Leave --page-size at 64, the backend's default.",
)
