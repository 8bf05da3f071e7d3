"""vllm.dynamic-ntk-table, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CONTEXT_LIMIT, DIES, LONG_PROMPT

BUG = KnownBug(
    id="vllm.dynamic-ntk-table",
    title="Prompts beyond the trained length read behind the rotary table, or end the server (dynamic NTK)",
    symptom="InternLM 2.5 and 3, and InternVL on them, answer garbage beyond 32768 tokens: the rotary table ends there.",
    symptoms=(LONG_PROMPT, CONTEXT_LIMIT, DIES),
    releases=(">=0.22.0,<=0.33.0",),
    code=(
        "vllm.model_executor.layers.rotary_embedding.dynamic_ntk_scaling_rope:"
        "DynamicNTKScalingRotaryEmbedding._compute_cos_sin_cache",
    ),
    upstream=Upstream("vllm-project/vllm", pull=55910),
    hits=AllOf(Is("dynamic NTK", ON), Unseen("requests longer than `max_position_embeddings`")),
    avoid="Start with `--max-model-len` at the model's `max_position_embeddings`.",
)
