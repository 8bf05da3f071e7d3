"""vllm.flex-reused-blocks, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE, LONG_PROMPT

BUG = KnownBug(
    id="vllm.flex-reused-blocks",
    title="Long prompts turn into garbage with sliding windows: their newest keys are masked (FLEX_ATTENTION)",
    symptom=(
        "A long request answers wrong in a full cache. A block that its window has freed and that it takes again counts as "
        "the old position."
    ),
    symptoms=(LONG_PROMPT, BACKEND, GARBAGE),
    releases=(">=0.11.0,<0.13.0",),
    code=("vllm.v1.attention.backends.flex_attention:physical_to_logical_mapping",),
    upstream=Upstream("vllm-project/vllm", pull=30915),
    hits=AllOf(
        AllOf(Is("attention backend", "FLEX_ATTENTION"), Is("sliding-window layers", ON)),
        AnyOf(
            AllOf(Not(Is("--disable-hybrid-kv-cache-manager", ON)), Is("KV connector", OFF)),
            Is("architecture", "MistralForCausalLM", "Phi3ForCausalLM", "Starcoder2ForCausalLM"),
        ),
        Unseen("a request so long that it takes blocks again which its windows have freed"),
    ),
    avoid="Start with `--disable-hybrid-kv-cache-manager`; where all layers have windows, take another attention backend.",
)
