"""vllm.longrope-switch, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT, SHARED_BATCH

BUG = KnownBug(
    id="vllm.longrope-switch",
    title="A request beyond the original context length garbles itself and those beside it (LongRoPE)",
    symptom="Text turns random where a request passes the original context length, and in requests that share a step with it.",
    symptoms=(SHARED_BATCH, LONG_PROMPT),
    releases=(">=0.10.0,<0.11.1",),
    code=(
        "vllm.model_executor.layers.rotary_embedding:Phi3LongRoPEScaledRotaryEmbedding.forward",
        "vllm.model_executor.layers.rotary_embedding.phi3_long_rope_scaled_rope:Phi3LongRoPEScaledRotaryEmbedding.forward",
    ),
    upstream=Upstream("vllm-project/vllm", pull=27431, issue=27414),
    hits=AllOf(Is("RoPE scaling", "longrope"), Unseen("requests beyond the original context length")),
    avoid="Set --max-model-len to original_max_position_embeddings of config.json.",
)
