"""sglang.llama4-local-pages, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, AnyOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GARBAGE

_BACKEND = "sglang.srt.layers.attention.flashattention_backend:FlashAttentionBackend"

BUG = KnownBug(
    id="sglang.llama4-local-pages",
    title="Llama 4 crashes or answers with garbage on fa3 with pages of several tokens",
    symptom="The first prompts of a Llama 4 end in an illegal memory access, or their answers are garbage.",
    symptoms=(DIES, GARBAGE),
    releases=(">=0.5.1,<0.5.20",),
    code=(f"{_BACKEND}._init_local_attn_metadata", f"{_BACKEND}._maybe_init_local_attn_metadata"),
    upstream=Upstream("sgl-project/sglang", pull=32902),
    hits=AllOf(
        Is("architecture", "Llama4ForConditionalGeneration", "Llama4ForCausalLM"),
        AnyOf(Is("prefill backend", "fa3"), Is("decode backend", "fa3")),
        Above("tokens of a page", 1),
    ),
    avoid="Set `--page-size 1`, the default, or `--attention-backend triton`.",
    harm=CRASH,
)
