"""vllm.gdn-fewer-drafts, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GARBAGE, SPECULATION

BUG = KnownBug(
    id="vllm.gdn-fewer-drafts",
    title="Qwen3-Next dies, or mixes up tokens, where requests verify different numbers of drafts",
    symptom="A shape error ends the engine, or answers turn into garbage, when a grammar rejects drafts or a step runs full.",
    symptoms=(
        DIES,
        SPECULATION,
        GARBAGE,
    ),
    releases=(">=0.10.2,<0.11.0",),
    code=("vllm.model_executor.models.qwen3_next:Qwen3NextGatedDeltaNet._forward",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("architecture", "Qwen3NextForCausalLM"),
        Is("speculative decoding", ON),
        Is("draft tokens of a step", "several"),
        Unseen("structured output, n-gram drafts, or steps whose tokens run out"),
    ),
    avoid="Set `num_speculative_tokens` to 1.",
    harm=CRASH,
)
